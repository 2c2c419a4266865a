// SPDX-License-Identifier: Apache-2.0
// Shared by the dialects: a communicator, its groups of calls, and the calls themselves in the library's own codes.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "group.h"
#include "platform.h"

namespace simulated {

// The results of a dialect.
struct Codes {
  int success = 0;
  int invalid_argument = 4;
  int invalid_usage = 5;
  int not_queued = 4;
  int nobody_came = 2;
};

struct Comm {
  static constexpr uint64_t kAlive = 0x636f6d6d;
  uint64_t magic = kAlive;
  std::shared_ptr<Group> group;
  double factor = 1; // of the operation that was made last
  bool aborted = false;
  int device = -1;
};

// Makes a communicator of ranks that have met. Refused if a rank has the device of another, or did not come.
int connect(const char* function, const std::string& name, int size, int rank, const Codes& codes, Comm** out);
bool is_alive(const Comm* comm);
// Ends a communicator, once. Its memory stays, so that a second end is noticed.
bool end(const char* function, Comm* comm, const Codes& codes);
// How many communicators are alive.
size_t live();

// Everything a call may have; what it does not have stays as it is.
struct Call {
  const char* function;
  Comm* comm;
  void* stream;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  std::optional<Type> type;
  std::optional<Op> op = Op::Sum;
  int root = 0;
};

// Whether the arguments are what the interface asks for; complains if not.
bool is_sound(const Call& call, const Codes& codes);

// Queues a call, or keeps it until the group of this thread ends.
int all_reduce(const Call& call, const Codes& codes);
int reduce(const Call& call, const Codes& codes);
int broadcast(const Call& call, const Codes& codes);
int all_gather(const Call& call, const Codes& codes);
int reduce_scatter(const Call& call, const Codes& codes);
int send(const Call& call, const Codes& codes);
int recv(const Call& call, const Codes& codes);
int group_start(const Codes& codes);
int group_end(const Codes& codes);
bool in_group();

} // namespace simulated
