// SPDX-License-Identifier: Apache-2.0
// Streams, as the runtime knows them.
#pragma once

#include <cstdint>
#include <memory>

#include "../../kit/simulated/machine.h"
#include "acl.h"
#include "memory.h"

namespace simulated_ascend {

struct Context;
class Call;

using machine::Work;

struct Stream : machine::Stream {
  using machine::Stream::Stream;
  void* handle = nullptr;
  std::shared_ptr<Context> context;
  uint32_t priority = 0;
  uint32_t flags = 0;
  uint64_t subscriber = 0; // the thread that runs its callbacks
  bool launched_callbacks = false;
  bool launched_host_functions = false;
};

// All under the lock.
std::shared_ptr<Stream> make_stream(const std::shared_ptr<Context>& context, uint32_t priority, uint32_t flags);
void close_stream(const std::shared_ptr<Stream>& stream);
// Queues or captures; the call's code.
int submit(Call& call, const std::shared_ptr<Stream>& stream, Work work);
// Waits for what is queued by now and takes the error of its work.
int synchronize(Call& call, const std::shared_ptr<Stream>& stream, int timeout_ms);

} // namespace simulated_ascend
