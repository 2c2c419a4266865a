// SPDX-License-Identifier: Apache-2.0
// The last calls of a group: what they were, and how far they came. Printed when one fails.
#pragma once

#include <array>
#include <chrono>
#include <mutex>
#include <string>

#include "distributed/operation.h"

namespace flagos {

class Record {
 public:
  // Notes a call; returns the number by which its progress is noted.
  uint64_t add(const Operation& operation, bool async);
  void done(uint64_t number, bool well);

  // JSON: the calls from the oldest to the newest.
  std::string json() const;

  // Reports a failure once: to the file `<folder>/<group>-rank<rank>.json` if there is a folder, and to standard error.
  void
  dump(const std::string& folder, const std::string& group, int rank, const std::string& state, const std::string& why);

 private:
  struct Entry {
    uint32_t kind = 0;
    uint32_t dtype = 0;
    int root = 0;
    uint64_t count = 0;
    uint64_t sequence = 0;
    bool async = false;
    const char* progress = "queued";
    std::chrono::system_clock::time_point queued;
  };
  static constexpr size_t kKept = 128;

  mutable std::mutex mutex_;
  std::array<Entry, kKept> entries_;
  uint64_t next_ = 0;
  bool dumped_ = false;
};

} // namespace flagos
