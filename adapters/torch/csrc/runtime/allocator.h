// SPDX-License-Identifier: Apache-2.0
// Device memory: the core's caching pool behind torch's allocator interfaces.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "runtime/pending.h"
#include "runtime/scoped.h"
#include "runtime/stream.h"

namespace flagos {

// A scope in which native kernels of this thread allocate from the pool of a flagos device, so that the pool's
// statistics include their outputs and workspaces.
class NativePoolScope : Scoped<c10::DeviceIndex> {
 public:
  explicit NativePoolScope(c10::DeviceIndex device) : Scoped(thread_state.pool_device, device) {}
};

// Bytes from the pool of `device`, on its current stream, as memory of the device `label`.
c10::DataPtr allocate_from_pool(size_t nbytes, c10::DeviceIndex device, c10::Device label);

// Gives bytes back to the pool. Returns false for memory that is not the pool's.
bool free_from_pool(void* data);

// The core's pool as torch's allocator, but for the form of its memory.
class CoreAllocator : public c10::DeviceAllocator {
 public:
  bool initialized() override;
  void emptyCache(c10::MempoolId_t pool) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;
};

// The core's pinned memory.
at::HostAllocator* core_pinned_allocator();

// To be called once where the core owns the memory.
void watch_forks_of_reports();

// torch's allocator of the flagos device.
extern c10::DeviceAllocator* registered_device_allocator;
inline c10::DeviceAllocator* device_allocator() {
  return registered_device_allocator;
}

// Makes these torch's allocators of flagos memory and of memory pinned for it.
void register_allocators(c10::DeviceAllocator* device, at::HostAllocator* pinned);

} // namespace flagos
