// SPDX-License-Identifier: Apache-2.0
// The collectives of flagos as the shim sees them: the C table, groups, and failures as torch's exceptions.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

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

// The code of a type. Types without one, which are only moved, are bytes.
uint32_t comm_dtype(c10::ScalarType type);

struct GroupSettings {
  std::string engine; // empty: the vendor decides
  std::string library;
  std::string group;
  uint64_t window = 0;
  // The folder for the report of a call that fails; empty for none.
  std::string dump_folder;
  std::vector<uint64_t> global_ranks;
};

// One rank's end of a group in the table. Connects the ranks on host memory; fails when they do not come in time.
class CommGroup {
 public:
  CommGroup(
      const GroupSettings& settings,
      const c10::intrusive_ptr<c10d::Store>& store,
      int rank,
      int size,
      std::chrono::milliseconds timeout);
  ~CommGroup();
  CommGroup(const CommGroup&) = delete;
  CommGroup& operator=(const CommGroup&) = delete;

  const FlagosCommGroup* get() const {
    return group_;
  }
  // The last calls and what is known of the ranks, as JSON.
  std::string state() const;

 private:
  FlagosCommGroup* group_ = nullptr;
};

} // namespace flagos
