// SPDX-License-Identifier: Apache-2.0
// Copies between host memory and device memory that the host cannot touch. All are queued on the current stream of the
// device; ordinary host memory must stay until `wait_for_stream`.
#pragma once

#include "runtime/pool_memory.h"
#include "runtime/stream.h"

namespace flagos {

inline void queue_copy(c10::DeviceIndex device, void* to, const void* from, size_t nbytes) {
  if (nbytes != 0) {
    check(core->copy_async(device, current_stream(device), to, from, nbytes));
  }
}

inline void wait_for_stream(c10::DeviceIndex device) {
  ++times_waited;
  check(core->stream_sync(device, current_stream(device)));
}

} // namespace flagos
