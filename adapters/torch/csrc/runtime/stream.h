// SPDX-License-Identifier: Apache-2.0
// Current device and current stream of each thread, and the order between operators and queued work.
#pragma once

#include <c10/core/Stream.h>

#include "runtime/native.h"

namespace flagos {

struct ThreadState {
  // Streams of devices beyond these are in `stream_of_far_device`.
  static constexpr c10::DeviceIndex kDevices = 16;

  c10::DeviceIndex device = 0;
  // While >= 0, native kernels of this thread allocate from the pool of that flagos device.
  c10::DeviceIndex pool_device = -1;
  uint64_t stream[kDevices] = {};
};

// Read at every dispatch. The initial-exec model saves a call each time; the state is small enough for the space that
// glibc reserves for libraries opened at run time.
extern thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

// Where torch owns the native device, its current device and streams are those of flagos.
inline c10::DeviceIndex current_device() {
  return C10_UNLIKELY(native->owned_by_torch) ? native_guard()->getDevice().index() : thread_state.device;
}

// Makes `device`, which exists, the current one.
inline void set_current_device(c10::DeviceIndex device) {
  if (native->owned_by_torch) {
    native_guard()->setDevice(c10::Device(native->type, device));
  } else {
    thread_state.device = device;
  }
}

// The current stream of a device from `ThreadState::kDevices` on, to read or to set.
uint64_t& stream_of_far_device(c10::DeviceIndex device);

inline uint64_t current_stream(c10::DeviceIndex device) {
  if (C10_UNLIKELY(native->owned_by_torch)) {
    return static_cast<uint64_t>(native_guard()->getStream(c10::Device(native->type, device)).id());
  }
  return C10_LIKELY(device < ThreadState::kDevices) ? thread_state.stream[device] : stream_of_far_device(device);
}

// Only where the core owns the streams.
inline void set_current_stream(c10::DeviceIndex device, uint64_t stream) {
  (device < ThreadState::kDevices ? thread_state.stream[device] : stream_of_far_device(device)) = stream;
}

inline c10::Stream to_stream(c10::DeviceIndex device, uint64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kFlagos, device), static_cast<c10::StreamId>(id));
}

// The number of queued items that have not finished. Where the host computes, operators run on the calling thread, so
// work queued before them (asynchronous copies, waits for events) must finish first. Other devices order their own
// streams: there the number is 0, but in a forked child, where it sends every operator to `drain_slowly`.
extern const uint64_t* pending_work;

// Waits for the current stream. Where torch owns the device it throws: the process is a forked child.
void drain_slowly(c10::DeviceIndex device);

inline void drain_current_stream(c10::DeviceIndex device) {
  if (C10_UNLIKELY(__atomic_load_n(pending_work, __ATOMIC_ACQUIRE) != 0)) {
    drain_slowly(device);
  }
}

// Makes `device` the current one for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex device) : device_(device), previous_(current_device()) {
    if (C10_UNLIKELY(device != previous_)) {
      set_current_device(device);
    }
  }
  ~DeviceScope() {
    if (C10_UNLIKELY(device_ != previous_)) {
      set_current_device(previous_);
    }
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::DeviceIndex device_;
  c10::DeviceIndex previous_;
};

} // namespace flagos
