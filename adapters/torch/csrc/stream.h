// SPDX-License-Identifier: Apache-2.0
// Current device and current stream of each thread, and the order between operators and queued work.
#pragma once

#include <c10/core/Stream.h>

#include "core.h"

namespace flagos {

constexpr int kMaxDevices = 16;

struct ThreadState {
  c10::DeviceIndex device = 0;
  // While >= 0, native kernels of this thread allocate from the pool of that flagos device.
  c10::DeviceIndex pool_device = -1;
  uint64_t stream[kMaxDevices] = {};
};

// Read at every dispatch: the initial-exec model saves a call each time, and fits glibc's reserve for dlopened
// libraries because the state is small.
extern thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

inline c10::DeviceIndex current_device() {
  return thread_state.device;
}

inline uint64_t current_stream(c10::DeviceIndex device) {
  return thread_state.stream[device];
}

inline c10::Stream to_stream(c10::DeviceIndex device, uint64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kFlagos, device), static_cast<c10::StreamId>(id));
}

// Operators of the host vendor run on the calling thread. What was queued before them on the current stream
// (asynchronous copies, waits for events) must have happened first.
extern const uint64_t* pending_work;

inline void drain_current_stream(c10::DeviceIndex device) {
  if (C10_UNLIKELY(__atomic_load_n(pending_work, __ATOMIC_ACQUIRE) != 0)) {
    check(core->stream_sync(device, current_stream(device)));
  }
}

// Makes `device` the current one for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex device) : previous_(thread_state.device) {
    thread_state.device = device;
  }
  ~DeviceScope() {
    thread_state.device = previous_;
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::DeviceIndex previous_;
};

} // namespace flagos
