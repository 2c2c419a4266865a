// SPDX-License-Identifier: Apache-2.0
#include "allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <memory>

#include "twin.h"

namespace flagos {

namespace {

void free_block(void* block) {
  core->mem_free(block);
}

// A block allocated while torch.profiler(profile_memory=True) listens: its end must be reported too.
struct ProfiledBlock {
  void* block;
  void* data;
  size_t nbytes;
  c10::DeviceIndex device;
};

void report_to_profiler(const ProfiledBlock& profiled, int64_t delta) {
  FlagosMemoryStats stats;
  if (core->mem_stats(profiled.device, &stats) == FLAGOS_OK) {
    c10::reportMemoryUsageToProfiler(
        profiled.data,
        delta,
        static_cast<size_t>(stats.allocated_bytes.all.current),
        static_cast<size_t>(stats.reserved_bytes.all.current),
        c10::Device(kFlagos, profiled.device));
  }
}

void free_profiled_block(void* context) {
  const std::unique_ptr<ProfiledBlock> profiled(static_cast<ProfiledBlock*>(context));
  core->mem_free(profiled->block);
  report_to_profiler(*profiled, -static_cast<int64_t>(profiled->nbytes));
}

class NativeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    const c10::DeviceIndex device = thread_state.pool_device;
    return device < 0 ? cpu()->allocate(nbytes) : allocate_native(nbytes, device);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return cpu()->raw_deleter();
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }

 private:
  static c10::Allocator* cpu() {
    return c10::GetDefaultCPUAllocator();
  }
};

c10::CachingAllocator::Stat to_stat(const FlagosStat& stat) {
  c10::CachingAllocator::Stat out;
  out.current = stat.current;
  out.peak = stat.peak;
  out.allocated = stat.allocated;
  out.freed = stat.freed;
  return out;
}

c10::CachingAllocator::StatArray to_stats(const FlagosStatArray& stats) {
  return {to_stat(stats.all), to_stat(stats.small_pool), to_stat(stats.large_pool)};
}

class FlagosAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    const c10::DeviceIndex device = current_device();
    auto native = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(),
        static_cast<int64_t>(nbytes),
        allocate_native(nbytes, device),
        native_allocator(),
        /*resizable=*/true);
    return twin_data_ptr(std::move(native), device);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr; // the context of a flagos DataPtr is its twin, never the data
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }
  bool initialized() override {
    return core->init() == FLAGOS_OK;
  }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    check(core->mem_empty_cache(-1));
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    c10::StorageImpl* twin = twin_of(data);
    void* block = twin != nullptr ? pool_block(twin->data_ptr()) : nullptr;
    if (block != nullptr) {
      check(core->mem_record_stream(block, static_cast<uint64_t>(stream.id())));
    }
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    FlagosMemoryStats from;
    check(core->mem_stats(device, &from));
    c10::CachingDeviceAllocator::DeviceStats to;
    to.allocation = to_stats(from.allocation);
    to.segment = to_stats(from.segment);
    to.active = to_stats(from.active);
    to.inactive_split = to_stats(from.inactive_split);
    to.allocated_bytes = to_stats(from.allocated_bytes);
    to.reserved_bytes = to_stats(from.reserved_bytes);
    to.active_bytes = to_stats(from.active_bytes);
    to.inactive_split_bytes = to_stats(from.inactive_split_bytes);
    to.requested_bytes = to_stats(from.requested_bytes);
    to.num_alloc_retries = from.num_alloc_retries;
    to.num_ooms = from.num_ooms;
    to.num_sync_all_streams = from.num_sync_all_streams;
    to.num_device_alloc = from.num_device_alloc;
    to.num_device_free = from.num_device_free;
    return to;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    check(core->mem_reset_accumulated(device));
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    check(core->mem_reset_peak(device));
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    size_t free = 0;
    size_t total = 0;
    check(core->mem_info(device, &free, &total));
    return {free, total};
  }
};

void free_pinned(void* block) {
  core->pinned_free(block);
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    check(core->init());
    void* data = nullptr;
    void* block = nullptr;
    check(core->pinned_alloc(nbytes, &data, &block));
    return {data, block, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }
  bool record_event(void* /*data*/, void* block, c10::Stream stream) override {
    check(core->pinned_record(block, stream.device_index(), static_cast<uint64_t>(stream.id())));
    return true;
  }
  void empty_cache() override {
    check(core->mem_empty_cache(-1));
  }
  at::HostStats get_stats() override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: statistics of pinned memory are not kept");
  }
  void reset_accumulated_stats() override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: statistics of pinned memory are not kept");
  }
  void reset_peak_stats() override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: statistics of pinned memory are not kept");
  }
};

} // namespace

c10::DataPtr allocate_native(size_t nbytes, c10::DeviceIndex device) {
  check(core->init());
  void* data = nullptr;
  void* block = nullptr;
  check(core->mem_alloc(device, current_stream(device), nbytes, &data, &block));
  if (C10_UNLIKELY(block != nullptr && c10::memoryProfilingEnabled())) {
    auto profiled = std::make_unique<ProfiledBlock>(ProfiledBlock{block, data, nbytes, device});
    report_to_profiler(*profiled, static_cast<int64_t>(nbytes));
    return {data, profiled.release(), &free_profiled_block, c10::Device(kNative)};
  }
  return {data, block, &free_block, c10::Device(kNative)};
}

void* pool_block(const c10::DataPtr& native) {
  if (native.get_deleter() == &free_profiled_block) {
    return static_cast<ProfiledBlock*>(native.get_context())->block;
  }
  return native.get_deleter() == &free_block ? native.get_context() : nullptr;
}

c10::DeviceAllocator* device_allocator() {
  static FlagosAllocator allocator;
  return &allocator;
}

c10::Allocator* native_allocator() {
  static NativeAllocator allocator;
  return &allocator;
}

void register_allocators() {
  static PinnedAllocator pinned;
  c10::SetAllocator(kFlagos, device_allocator(), /*priority=*/1);
  c10::SetCPUAllocator(native_allocator(), /*priority=*/1);
  at::setHostAllocator(kFlagos, &pinned, /*priority=*/1);
}

} // namespace flagos
