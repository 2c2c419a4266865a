// SPDX-License-Identifier: Apache-2.0
// Times for DistributedDataParallel's statistics from events of the device, as torch takes them on its own devices.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <array>

#include "distributed/ddp_timer.h"
#include "runtime/core.h"

namespace flagos {

namespace {

class DdpTimer final : public c10d::Timer {
 public:
  explicit DdpTimer(c10::Device device) : device_(device) {}
  ~DdpTimer() override {
    for (void* event : events_) {
      if (event != nullptr) {
        guard()->destroyEvent(event, device_.index());
      }
    }
  }

  void record(Event event) override {
    Timer::record(event); // the host's side, which the statistics have too
    guard()->record(
        &events_[static_cast<size_t>(event)],
        guard()->getStream(device_),
        device_.index(),
        c10::EventFlag::BACKEND_DEFAULT);
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    void* first = events_[static_cast<size_t>(start)];
    void* last = events_[static_cast<size_t>(end)];
    if (first == nullptr || last == nullptr) {
      return std::nullopt;
    }
    guard()->synchronizeEvent(last);
    const double milliseconds = guard()->elapsedTime(first, last, device_.index());
    // A part that did not run in this step has an older event at its end: a negative time.
    return milliseconds < 0 ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(milliseconds * 1e6));
  }

 private:
  static const c10::impl::DeviceGuardImplInterface* guard() {
    return c10::impl::getDeviceGuardImpl(kFlagos);
  }
  c10::Device device_;
  std::array<void*, 5> events_{};
};

std::unique_ptr<c10d::Timer> make_timer(c10::Device device) {
  return std::make_unique<DdpTimer>(device);
}

} // namespace

void register_ddp_timer() {
  c10d::TimerRegistry()->Register(c10::DeviceType::PrivateUse1, &make_timer);
}

} // namespace flagos
