// SPDX-License-Identifier: Apache-2.0
#include "runtime/allocator.h"

#include "runtime/pool_memory.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "runtime/twin.h"

namespace flagos {

namespace {

// The allocations that were reported to torch.profiler(profile_memory=True) and are still alive, by address: the end of
// an allocation is reported only if its beginning was.
class ReportedAllocations {
 public:
  struct Allocation {
    size_t nbytes;
    c10::DeviceIndex device;
  };

  static ReportedAllocations& instance() {
    static auto* reported = new ReportedAllocations(); // never destroyed: tensors may end after static destruction
    return *reported;
  }

  void add(void* data, const Allocation& allocation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    allocations_[data] = allocation;
    count_.store(allocations_.size(), std::memory_order_relaxed);
  }
  // To be called before the memory is freed, when its address may get another owner.
  std::optional<Allocation> take(void* data) {
    if (C10_LIKELY(count_.load(std::memory_order_relaxed) == 0)) {
      return std::nullopt;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto node = allocations_.extract(data);
    count_.store(allocations_.size(), std::memory_order_relaxed);
    return node.empty() ? std::nullopt : std::optional<Allocation>(node.mapped());
  }
  // A child must not inherit the lock of another thread of its parent.
  static void watch_forks() {
    pthread_atfork(
        [] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().mutex_.unlock(); });
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, Allocation> allocations_;
  std::atomic<size_t> count_{0};
};

void report_to_profiler(void* data, int64_t delta, c10::DeviceIndex device) {
  FlagosMemoryStats stats;
  if (core->mem_stats(device, &stats) == FLAGOS_OK) {
    c10::reportMemoryUsageToProfiler(
        data,
        delta,
        static_cast<size_t>(stats.allocated_bytes.all.current),
        static_cast<size_t>(stats.reserved_bytes.all.current),
        c10::Device(kFlagos, device));
  }
}

// The address is the whole context of the memory: users of `raw_allocate` (oneDNN's scratch memory) need that.
void free_with_context(void* data) {
  if (C10_UNLIKELY(__atomic_load_n(&calls_pending, __ATOMIC_ACQUIRE)) && native->by_copies && keep_pool_memory(data)) {
    return;
  }
  free_from_pool(data);
}

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
  // Finds the block by address, because the storage over it may be somebody else's (NumPy's, DLPack's).
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

bool is_from_pool(const c10::DataPtr& memory) {
  return memory.get_deleter() == &free_with_context;
}

bool (*keep_pool_memory)(void* data) = nullptr;
thread_local bool repeats_call = false;
thread_local uint64_t times_waited = 0;
std::shared_mutex waits_for_device;

bool free_from_pool(void* data) {
  if (C10_UNLIKELY(give_back_planned != nullptr && give_back_planned(data))) {
    return true;
  }
  const auto reported = ReportedAllocations::instance().take(data);
  const bool freed = core->mem_free_at(data) != 0;
  if (C10_UNLIKELY(reported.has_value())) {
    report_to_profiler(data, -static_cast<int64_t>(reported->nbytes), reported->device);
  }
  return freed;
}

c10::DataPtr allocate_from_pool(size_t nbytes, c10::DeviceIndex device, c10::Device label) {
  check(core->init());
  if (C10_UNLIKELY(planned_memory != nullptr)) {
    if (c10::DataPtr planned = planned_memory->allocate(nbytes, label)) {
      if (native->by_copies) {
        note_birth(planned.get());
      }
      return planned;
    }
  }
  void* data = nullptr;
  int32_t status = core->mem_alloc_at(device, current_stream(device), nbytes, &data);
  if (C10_UNLIKELY(status != FLAGOS_OK && release_graphs != nullptr && release_graphs())) {
    status = core->mem_alloc_at(device, current_stream(device), nbytes, &data);
  }
  check(status);
  if (native->by_copies) {
    note_birth(data);
  }
  if (C10_UNLIKELY(c10::memoryProfilingEnabled()) && data != nullptr) {
    ReportedAllocations::instance().add(data, {nbytes, device});
    report_to_profiler(data, static_cast<int64_t>(nbytes), device);
  }
  return {data, data, &free_with_context, label};
}

c10::DeviceAllocator* registered_device_allocator = nullptr;

void register_allocators(c10::DeviceAllocator* device, at::HostAllocator* pinned) {
  registered_device_allocator = device;
  c10::SetAllocator(kFlagos, device, /*priority=*/1);
  at::setHostAllocator(kFlagos, pinned, /*priority=*/1);
}

bool CoreAllocator::initialized() {
  return core->init() == FLAGOS_OK;
}

void CoreAllocator::emptyCache(c10::MempoolId_t /*pool*/) {
  check(core->mem_empty_cache(-1));
}

c10::CachingDeviceAllocator::DeviceStats CoreAllocator::getDeviceStats(c10::DeviceIndex device) {
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

void CoreAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  check(core->mem_reset_accumulated(device));
}

void CoreAllocator::resetPeakStats(c10::DeviceIndex device) {
  check(core->mem_reset_peak(device));
}

std::pair<size_t, size_t> CoreAllocator::getMemoryInfo(c10::DeviceIndex device) {
  size_t free = 0;
  size_t total = 0;
  check(core->mem_info(device, &free, &total));
  return {free, total};
}

at::HostAllocator* core_pinned_allocator() {
  static PinnedAllocator pinned;
  return &pinned;
}

void watch_forks_of_reports() {
  ReportedAllocations::watch_forks();
}

} // namespace flagos
