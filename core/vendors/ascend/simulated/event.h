// SPDX-License-Identifier: Apache-2.0
// Events of both kinds: those that take an event of the hardware when they are recorded, and those that do not ("Ex").
#pragma once

#include <cstdint>
#include <map>
#include <memory>

namespace simulated_ascend {

struct Capture;
struct Stream;

// One record of an event; a wait keeps the one it was asked with.
struct Mark {
  bool done = false;
  uint64_t nanoseconds = 0;
  int code = 0; // of the stream that reached it
};

// What a stream has seen of each captured stream: a number of nodes.
using Clock = std::map<Stream*, size_t>;

struct Event {
  void* handle = nullptr;
  int device = 0;
  bool extended = false;
  uint32_t flags = 0;
  bool hardware = false;
  size_t waits = 0;                 // that have not run
  std::shared_ptr<Mark> mark;       // none before the first record
  std::shared_ptr<Capture> capture; // that it was recorded in
  size_t node = 0;
  Clock clock;
};

uint64_t nanoseconds_now();

} // namespace simulated_ascend
