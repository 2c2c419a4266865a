// SPDX-License-Identifier: Apache-2.0
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <shared_mutex>

#include "runtime/allocator.h"
#include "runtime/pool_memory.h"
#include "runtime/register.h"
#include "torch_version.h"

namespace flagos {

namespace {

class FlagosGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return kFlagos;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override {
    return c10::Device(kFlagos, current_device());
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.type() == kFlagos, "flagos: expected a flagos device, got ", device);
    if (device.index() != current_device()) {
      check_device_index(device.index());
      thread_state.device = device.index();
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    thread_state.device = device.index();
  }

  c10::Stream getStream(c10::Device device) const override {
    const c10::DeviceIndex index = resolve(device);
    return to_stream(index, current_stream(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return to_stream(resolve(device), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    check(core->init());
    const c10::DeviceIndex index = resolve(device);
    uint64_t id = 0;
    check(core->stream_create(index, priority, &id));
    return to_stream(index, id);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::DeviceIndex index = resolve(stream.device());
    const c10::Stream previous = to_stream(index, current_stream(index));
    set_current_stream(index, static_cast<uint64_t>(stream.id()));
    return previous;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    launch_before_unseen_call("the handle of a stream");
    void* handle = nullptr;
    check(core->stream_native(stream.device_index(), static_cast<uint64_t>(stream.id()), &handle));
    // The core's number of the stream where the vendor's library has no handles.
    return handle != nullptr ? handle : reinterpret_cast<void*>(static_cast<uintptr_t>(stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    launch_pending("a query of a stream");
    int32_t idle = 0;
    check(core->stream_query(stream.device_index(), static_cast<uint64_t>(stream.id()), &idle));
    return idle != 0;
  }
  bool isStreamCapturing(const c10::Stream& stream) const FLAGOS_OVERRIDE_SINCE_2_12 {
    int32_t capture = FLAGOS_CAPTURE_NONE;
    check(core->stream_capture_status(stream.device_index(), static_cast<uint64_t>(stream.id()), &capture));
    return capture != FLAGOS_CAPTURE_NONE;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    launch_pending("synchronize");
    check(core->stream_sync(stream.device_index(), static_cast<uint64_t>(stream.id())));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    launch_pending("synchronize");
    const std::shared_lock<std::shared_mutex> waiting(waits_for_device);
    check(core->device_sync(device < 0 ? current_device() : device));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device, const c10::EventFlag flag)
      const override {
    launch_pending("an event");
    TORCH_CHECK(
        device == -1 || device == stream.device_index(),
        "flagos: an event of flagos:",
        device,
        " cannot be recorded on a stream of ",
        stream.device());
    if (*event == nullptr) {
      check(core->init());
      check(core->event_create(stream.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT ? 1 : 0, event));
    }
    check(core->event_record(*event, stream.device_index(), static_cast<uint64_t>(stream.id())));
  }
  void block(void* event, const c10::Stream& stream) const override {
    launch_pending("an event");
    if (event != nullptr) {
      check(core->event_wait(event, stream.device_index(), static_cast<uint64_t>(stream.id())));
    }
  }
  bool queryEvent(void* event) const override {
    launch_pending("an event");
    if (event == nullptr) {
      return true;
    }
    int32_t done = 0;
    check(core->event_query(event, &done));
    return done != 0;
  }
  void synchronizeEvent(void* event) const override {
    launch_pending("an event");
    if (event != nullptr) {
      check(core->event_sync(event));
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) {
      core->event_destroy(event);
    }
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "flagos: both events must be recorded before elapsed_time");
    double milliseconds = 0;
    check(core->event_elapsed(start, end, &milliseconds));
    return milliseconds;
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(core->device_count());
  }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    return c10::DeviceCapability(); // the default has every data type, and the CPU serves every one
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    lend(data);
    device_allocator()->recordStream(data, stream);
  }

 private:
  static c10::DeviceIndex resolve(c10::Device device) {
    if (!device.has_index()) {
      return current_device();
    }
    if (device.index() != current_device()) {
      check_device_index(device.index());
    }
    return device.index();
  }
};

} // namespace

void register_core_guard() {
  watch_forks_of_reports();
  pending_work = core->pending();
  c10::impl::registerDeviceGuard(kFlagos, new FlagosGuard());
}

} // namespace flagos
