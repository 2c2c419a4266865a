// SPDX-License-Identifier: Apache-2.0
// Device memory: the core's caching pool behind torch's allocator interfaces.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "runtime/stream.h"

namespace flagos {

// Inside it, native kernels of this thread allocate from the pool of a flagos device, so that outputs, workspaces
// and statistics all belong to one pool.
class NativePoolScope {
 public:
  explicit NativePoolScope(c10::DeviceIndex device) : previous_(thread_state.pool_device) {
    thread_state.pool_device = device;
  }
  ~NativePoolScope() {
    thread_state.pool_device = previous_;
  }
  NativePoolScope(const NativePoolScope&) = delete;
  NativePoolScope& operator=(const NativePoolScope&) = delete;

 private:
  c10::DeviceIndex previous_;
};

// Bytes from the pool of `device`, on its current stream, as native (CPU) memory.
c10::DataPtr allocate_native(size_t nbytes, c10::DeviceIndex device);

// The core's block behind a native DataPtr, or null if the memory did not come from the pool.
void* pool_block(const c10::DataPtr& native);

// torch's allocator of the flagos device.
c10::DeviceAllocator* device_allocator();

// The allocator that replaces torch's CPU allocator: the pool inside a NativePoolScope, torch's own outside.
c10::Allocator* native_allocator();

void register_allocators();

} // namespace flagos
