// SPDX-License-Identifier: Apache-2.0
// Streams: each has a thread of its own, which runs its tasks in order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "acl.h"
#include "memory.h"

namespace simulated_ascend {

struct Context;
struct Capture;
class Call;

// A task before it is queued.
struct Work {
  std::string name;
  std::function<int()> run; // without the lock; its result is the code that the device fails with
  std::vector<Use> uses;
  bool always = false; // runs on a stream that has failed too, so that nobody waits for ever
};

struct Task {
  uint64_t id;
  Work work;
};

struct Stream {
  void* handle = nullptr;
  std::shared_ptr<Context> context;
  uint32_t priority = 0;
  uint32_t flags = 0;
  int id = 0;
  bool started = false; // its thread, with the first task
  bool closed = false;
  std::deque<Task> tasks;
  uint64_t submitted = 0;
  uint64_t completed = 0;
  uint64_t aborted = 0; // tasks up to this one are dropped
  int error = kSuccess;
  std::string failed; // the task that made the error
  uint64_t failure_mode = kContinueOnFailure;
  std::shared_ptr<Capture> capture;
  uint64_t subscriber = 0; // the thread that runs its callbacks
  bool launched_callbacks = false;
  bool launched_host_functions = false;
  std::minstd_rand random; // delays
};

// All under the lock.
std::shared_ptr<Stream> make_stream(const std::shared_ptr<Context>& context, uint32_t priority, uint32_t flags);
void close_stream(const std::shared_ptr<Stream>& stream);
// Queues or captures; the call's code.
int submit(Call& call, const std::shared_ptr<Stream>& stream, Work work);
// Waits for what is queued by now and takes the error of its work.
int synchronize(Call& call, const std::shared_ptr<Stream>& stream, int timeout_ms);

} // namespace simulated_ascend
