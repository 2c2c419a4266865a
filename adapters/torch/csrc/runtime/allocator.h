// SPDX-License-Identifier: Apache-2.0
// Device memory: the core's caching pool behind torch's allocator interfaces.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "runtime/scoped.h"
#include "runtime/stream.h"

namespace flagos {

// A scope in which native kernels of this thread allocate from the pool of a flagos device, so that the pool's
// statistics include their outputs and workspaces.
class NativePoolScope : Scoped<c10::DeviceIndex> {
 public:
  explicit NativePoolScope(c10::DeviceIndex device) : Scoped(thread_state.pool_device, device) {}
};

// Bytes from the pool of `device`, on its current stream, as native (CPU) memory.
c10::DataPtr allocate_native(size_t nbytes, c10::DeviceIndex device);

// torch's allocator of the flagos device: the core's pool, or the one that the cuda room registered.
extern c10::DeviceAllocator* registered_device_allocator;
inline c10::DeviceAllocator* device_allocator() {
  return registered_device_allocator;
}

// Makes these torch's allocators of flagos memory and of memory pinned for it.
void register_allocators(c10::DeviceAllocator* device, at::HostAllocator* pinned);

} // namespace flagos
