// SPDX-License-Identifier: Apache-2.0
#include "runtime/register.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "runtime/generator.h"
#include "runtime/pending.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

class FlagosHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return device_count() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return native->has_primary_context(device);
  }
  void init() const override {
    open_native_device();
  }
  c10::DeviceIndex deviceCount() const override {
    return device_count();
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    check_device_index(device);
    set_current_device(device);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex previous = current_device();
    setCurrentDevice(device);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return make_generator(device);
  }

  bool isPinnedPtr(const void* data) const override {
    return native->is_pinned(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(kFlagos);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    const c10::DeviceIndex device = native->device_of(data);
    TORCH_CHECK(device >= 0, "flagos: the pointer ", data, " is not memory of a flagos device");
    return c10::Device(kFlagos, device);
  }

  // `storage.resize_(nbytes)`: keeps the first min(old, nbytes) bytes, as every backend does.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
    launch_before_unseen_call("storage.resize_");
    drain_current_stream(impl->device().index());
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable"); // such as shared memory
    native->resize(impl, nbytes);
  }
};

} // namespace

void register_hooks() {
  TORCH_CHECK(
      !at::isPrivateUse1HooksRegistered(),
      "flagos: another plugin has already registered itself for PrivateUse1; only one can be active in a process. "
      "Disable the other one (TORCH_DEVICE_BACKEND_AUTOLOAD=0 stops automatic loading), then import torch_fl.");
  at::RegisterPrivateUse1HooksInterface(new FlagosHooks());
}

} // namespace flagos
