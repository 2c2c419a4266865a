// SPDX-License-Identifier: Apache-2.0
#include "runtime/allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/flat_hash_map.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "aten/twin.h"
#include "cuda/device.h"

namespace flagos {

namespace {

// The block of each native allocation, by address. A DataPtr's context would be the natural place, but users of
// `raw_allocate` (oneDNN's scratch memory) need the context to be the data itself.
class BlockTable {
 public:
  struct Entry {
    void* block = nullptr;
    size_t nbytes = 0;
    c10::DeviceIndex device = -1;
    bool profiled = false;
  };

  void insert(void* data, const Entry& entry) {
    Shard& shard = shard_of(data);
    const std::lock_guard<Spinlock> lock(shard.lock);
    shard.entries[data] = entry;
  }
  Entry find(void* data) {
    Shard& shard = shard_of(data);
    const std::lock_guard<Spinlock> lock(shard.lock);
    const auto found = shard.entries.find(data);
    return found == shard.entries.end() ? Entry() : found->second;
  }
  Entry take(void* data) {
    Shard& shard = shard_of(data);
    const std::lock_guard<Spinlock> lock(shard.lock);
    const auto found = shard.entries.find(data);
    if (found == shard.entries.end()) {
      return Entry();
    }
    const Entry entry = found->second;
    shard.entries.erase(found);
    return entry;
  }
  // Around fork, so that a child never inherits a lock that a thread it does not have holds.
  void lock_all() {
    for (Shard& shard : shards_) {
      shard.lock.lock();
    }
  }
  void unlock_all() {
    for (Shard& shard : shards_) {
      shard.lock.unlock();
    }
  }

 private:
  class Spinlock { // held for a few instructions
   public:
    void lock() {
      while (flag_.test_and_set(std::memory_order_acquire)) {
      }
    }
    void unlock() {
      flag_.clear(std::memory_order_release);
    }

   private:
    std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
  };
  // Addresses are multiples of 64; the low bits say nothing.
  struct Hash {
    size_t operator()(void* data) const {
      return (reinterpret_cast<uintptr_t>(data) >> 6U) * 0x9E3779B97F4A7C15U >> 8U;
    }
  };
  struct alignas(64) Shard {
    Spinlock lock;
    ska::flat_hash_map<void*, Entry, Hash> entries;
  };
  Shard& shard_of(void* data) {
    return shards_[Hash()(data) >> 40U & (kShards - 1)];
  }
  static constexpr size_t kShards = 16;
  std::array<Shard, kShards> shards_;
};

BlockTable& block_table() {
  static auto* table = new BlockTable(); // tensors outlive static destruction
  return *table;
}

// Tells torch.profiler(profile_memory=True); a block reported at its birth is reported at its end.
void report_to_profiler(void* data, const BlockTable::Entry& entry, int64_t delta) {
  FlagosMemoryStats stats;
  if (core->mem_stats(entry.device, &stats) == FLAGOS_OK) {
    c10::reportMemoryUsageToProfiler(
        data,
        delta,
        static_cast<size_t>(stats.allocated_bytes.all.current),
        static_cast<size_t>(stats.reserved_bytes.all.current),
        c10::Device(kFlagos, entry.device));
  }
}

bool free_from_pool(void* data) {
  const BlockTable::Entry entry = block_table().take(data);
  if (entry.block == nullptr) {
    return false;
  }
  core->mem_free(entry.block);
  if (C10_UNLIKELY(entry.profiled)) {
    report_to_profiler(data, entry, -static_cast<int64_t>(entry.nbytes));
  }
  return true;
}

void free_native(void* data) {
  free_from_pool(data);
}

// Frees what `raw_allocate` returned, inside a NativePoolScope or outside.
void free_raw(void* data) {
  if (!free_from_pool(data)) {
    c10::GetDefaultCPUAllocator()->raw_deleter()(data);
  }
}

class NativeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    const c10::DeviceIndex device = thread_state.pool_device;
    return device < 0 ? cpu()->allocate(nbytes) : allocate_native(nbytes, device);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &free_raw;
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

c10::CachingAllocator::DurationStat to_stat(const FlagosDurationStat& stat) {
  c10::CachingAllocator::DurationStat out;
  out.total = stat.total;
  out.max = stat.max;
  out.min = stat.min;
  out.count = stat.count;
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
  // By address: a storage of somebody else's (NumPy's, DLPack's) may be what looks at the block.
  bool record_event(void* data, void* /*context*/, c10::Stream stream) override {
    if (core->is_pinned(data) == 0) {
      return false;
    }
    check(core->pinned_record(data, stream.device_index(), static_cast<uint64_t>(stream.id())));
    return true;
  }
  void empty_cache() override {
    check(core->mem_empty_cache(-1));
  }
  at::HostStats get_stats() override {
    FlagosPinnedStats from;
    check(core->pinned_stats(&from));
    at::HostStats to;
    to.active_requests = to_stat(from.active_requests);
    to.active_bytes = to_stat(from.active_bytes);
    to.allocations = to_stat(from.allocations);
    to.allocated_bytes = to_stat(from.allocated_bytes);
    to.host_alloc_time = to_stat(from.host_alloc_time);
    to.host_free_time = to_stat(from.host_free_time);
    to.num_host_alloc = from.host_alloc_time.count;
    to.num_host_free = from.host_free_time.count;
    to.bucket_allocation.assign(std::begin(from.bucket_allocation), std::end(from.bucket_allocation));
    return to;
  }
  void reset_accumulated_stats() override {
    check(core->pinned_reset_accumulated());
  }
  void reset_peak_stats() override {
    check(core->pinned_reset_peak());
  }
};

} // namespace

c10::DataPtr allocate_native(size_t nbytes, c10::DeviceIndex device) {
  check(core->init());
  void* data = nullptr;
  void* block = nullptr;
  check(core->mem_alloc(device, current_stream(device), nbytes, &data, &block));
  if (block != nullptr) {
    const BlockTable::Entry entry{block, nbytes, device, c10::memoryProfilingEnabled()};
    block_table().insert(data, entry);
    if (C10_UNLIKELY(entry.profiled)) {
      report_to_profiler(data, entry, static_cast<int64_t>(nbytes));
    }
  }
  return {data, data, &free_native, native_device(device)};
}

void* pool_block(const c10::DataPtr& native) {
  return native.get_deleter() == &free_native ? block_table().find(native.get()).block : nullptr;
}

c10::DeviceAllocator* device_allocator() {
  static FlagosAllocator allocator;
  return native.cuda ? cuda_backed_allocator() : &allocator;
}

c10::Allocator* native_allocator() {
  static NativeAllocator allocator;
  return &allocator;
}

void register_allocators() {
  c10::SetAllocator(kFlagos, device_allocator(), /*priority=*/1);
  if (native.cuda) {
    at::setHostAllocator(kFlagos, cuda_backed_pinned_allocator(), /*priority=*/1);
    return;
  }
  static PinnedAllocator pinned;
  pthread_atfork(
      [] { block_table().lock_all(); }, [] { block_table().unlock_all(); }, [] { block_table().unlock_all(); });
  c10::SetCPUAllocator(native_allocator(), /*priority=*/1);
  at::setHostAllocator(kFlagos, &pinned, /*priority=*/1);
}

} // namespace flagos
