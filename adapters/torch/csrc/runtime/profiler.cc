// SPDX-License-Identifier: Apache-2.0
#include "runtime/register.h"

#include <torch/csrc/profiler/stubs/base.h>

#include <chrono>

#include "runtime/stream.h"

namespace flagos {

namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

// What fails while a program is profiled is said once, and the device's time is missing. torch does not expect errors
// here: its own hooks would stay behind, half done.
bool succeeded(int32_t status) {
  if (C10_UNLIKELY(status != FLAGOS_OK)) {
    TORCH_WARN_ONCE("the profiler has no device time here: ", core->last_error());
    return false;
  }
  return true;
}

class FlagosProfiler final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    const c10::DeviceIndex index = current_device();
    void* raw = nullptr;
    *event = nullptr; // of no time: see `elapsed`
    // A program of CPU tensors, which torch profiles in the same way, does not open the device. What is recorded while
    // a stream is captured belongs to the graph, and has no time of its own.
    const bool open = __atomic_load_n(&device_open, __ATOMIC_ACQUIRE);
    if (open && !native->is_capturing(index) && succeeded(core->event_create(index, /*timing=*/1, &raw))) {
      ProfilerVoidEventStub made(raw, [](void* handle) { core->event_destroy(handle); });
      if (succeeded(core->event_record(raw, index, current_stream(index)))) {
        *event = std::move(made);
      }
    }
    if (device != nullptr) {
      *device = index;
    }
    if (cpu_ns != nullptr) {
      *cpu_ns =
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
              .count();
    }
  }
  // Microseconds; 0 where one of the events was not recorded.
  float elapsed(const ProfilerVoidEventStub* start, const ProfilerVoidEventStub* end) const override {
    double milliseconds = 0;
    if (*start == nullptr || *end == nullptr || !succeeded(core->event_sync(start->get())) ||
        !succeeded(core->event_sync(end->get())) ||
        !succeeded(core->event_elapsed(start->get(), end->get(), &milliseconds))) {
      return 0;
    }
    return static_cast<float>(milliseconds * 1000);
  }
  // No vendor of the core has a tool that would show marks and ranges.
  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}
  bool enabled() const override {
    return true;
  }
  void onEachDevice(std::function<void(int)> visit) const override {
    for (int32_t device = 0; device < device_count(); ++device) {
      visit(device);
    }
  }
  void synchronize() const override {
    for (int32_t device = 0; device < device_count(); ++device) {
      succeeded(core->device_sync(device));
    }
  }
};

} // namespace

void register_profiler() {
  static FlagosProfiler profiler;
  torch::profiler::impl::ProfilerStubs* own = native->profiler();
  torch::profiler::impl::registerPrivateUse1Methods(own != nullptr ? own : &profiler);
}

} // namespace flagos
