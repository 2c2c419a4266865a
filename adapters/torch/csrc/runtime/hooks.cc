// SPDX-License-Identifier: Apache-2.0
#include "runtime/register.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "runtime/generator.h"
#include "runtime/storage.h"

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
    return native.cuda ? at::detail::getCUDAHooks().hasPrimaryContext(device) : core->init() == FLAGOS_OK;
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
    return native.cuda ? at::detail::getCUDAHooks().isPinnedPtr(data) : core->is_pinned(data) != 0;
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(kFlagos);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    if (native.cuda) {
      return c10::Device(kFlagos, at::detail::getCUDAHooks().getDeviceFromPtr(data).index());
    }
    const int32_t device = core->mem_device_of(data);
    TORCH_CHECK(device >= 0, "flagos: the pointer ", data, " is not memory of a flagos device");
    return c10::Device(kFlagos, static_cast<c10::DeviceIndex>(device));
  }

  // `storage.resize_(nbytes)`: keeps the first min(old, nbytes) bytes, as every backend does.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
    const c10::DeviceIndex device = impl->device().index();
    drain_current_stream(device);
    c10::StorageImpl* twin = twin_of(impl->data_ptr());
    TORCH_CHECK(twin != nullptr, "flagos: storage over memory that came from outside cannot be resized");
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable"); // such as shared memory
    const size_t kept = std::min(nbytes, twin->nbytes());
    if (native.cuda) {
      const DeviceScope scope(device);
      c10::DataPtr data = at::detail::getCUDAHooks().getCUDADeviceAllocator()->allocate(nbytes);
      if (kept != 0) {
        const auto bytes = at::TensorOptions().dtype(at::kByte).device(native_device(device));
        const at::Tensor from = at::from_blob(twin->mutable_data(), {static_cast<int64_t>(kept)}, bytes);
        at::from_blob(data.mutable_get(), {static_cast<int64_t>(kept)}, bytes).copy_(from);
      }
      twin->set_data_ptr_noswap(std::move(data));
    } else {
      c10::DataPtr data = allocate_native(nbytes, device);
      if (kept != 0) {
        std::memcpy(data.mutable_get(), twin->data(), kept);
      }
      twin->set_data_ptr_noswap(std::move(data));
    }
    twin->set_nbytes(nbytes);
    refresh_from_twin(impl, twin, device);
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
