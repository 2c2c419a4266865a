// SPDX-License-Identifier: Apache-2.0
// The collectives of flagos as the shim sees them: the C table, communicators, and failures as torch's exceptions.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

#include "flagos_comm.h"

namespace flagos {

// The table; set once by `open_comm`, valid for the life of the process.
extern const FlagosCommApi* comm_api;

void open_comm(const FlagosCommApi* api);

// Throws what the status means in torch: ValueError, NotImplementedError or DistBackendError.
[[noreturn]] void raise_comm(int32_t status);

inline void check_comm(int32_t status) {
  if (C10_UNLIKELY(status != FLAGOS_COMM_OK)) {
    raise_comm(status);
  }
}

// The code of a type. Those that are only moved, and have no code, are bytes.
uint32_t comm_dtype(c10::ScalarType type);

// Whether `failure` of a store says that a key did not come in time, and not that the store is gone.
bool only_late(const std::exception& failure, c10d::Store& store, const std::string& key);

// What a group is told when it is made.
struct CommSettings {
  std::string engine; // empty: the memory decides
  std::string library;
  std::string group;
  uint64_t window = 0;
};

// One rank's end of a group. Shared by the group, its workers and its watchdog.
class Comm {
 public:
  Comm(
      const CommSettings& settings,
      const std::string& vendor,
      c10::intrusive_ptr<c10d::Store> store,
      int rank,
      int size,
      std::chrono::milliseconds timeout);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  const FlagosComm* get() const {
    return comm_;
  }
  std::string engine() const {
    return comm_api->engine(comm_);
  }
  bool on_streams() const {
    return comm_api->on_streams(comm_) != 0;
  }
  // What is known of the ranks, as JSON.
  std::string state() const;
  void abort(const std::string& reason) const {
    comm_api->abort(comm_, reason.c_str());
  }

 private:
  FlagosComm* comm_ = nullptr;
};

} // namespace flagos
