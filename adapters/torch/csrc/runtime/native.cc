// SPDX-License-Identifier: Apache-2.0
#include "runtime/native.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

namespace flagos {

const Native* native = nullptr;
bool device_open = false;
void (*at_first_use)() = nullptr;

c10::DeviceIndex Native::device_count() const noexcept {
  return static_cast<c10::DeviceIndex>(core->device_count());
}

bool Native::has_primary_context(c10::DeviceIndex /*device*/) const {
  return core->init() == FLAGOS_OK;
}

bool Native::is_pinned(const void* data) const {
  return core->is_pinned(data) != 0;
}

c10::DeviceIndex Native::device_of(void* data) const {
  return static_cast<c10::DeviceIndex>(core->mem_device_of(data));
}

at::Generator Native::default_generator(c10::DeviceIndex /*device*/) const {
  return at::detail::getDefaultCPUGenerator();
}

at::Generator Native::new_generator(c10::DeviceIndex /*device*/) const {
  return at::detail::createCPUGenerator();
}

bool Native::is_capturing(c10::DeviceIndex /*device*/) const {
  return false;
}

void open_native_device() {
  check(core->init());
  native->open();
  static std::once_flag used;
  std::call_once(used, at_first_use);
  __atomic_store_n(&device_open, true, __ATOMIC_RELEASE);
}

void open_device_slowly() {
  at::globalContext().lazyInitDevice(kFlagos);
  if (!__atomic_load_n(&device_open, __ATOMIC_ACQUIRE)) {
    open_native_device(); // in a forked child, where torch does not call it again: throws
  }
}

void check_device_index(int64_t index) {
  const int32_t count = device_count();
  TORCH_CHECK(
      index >= 0 && index < count,
      "flagos: invalid device ordinal ",
      index,
      count > 0 ? "; valid are flagos:0" : "; no flagos device is available (see `flagos doctor`)",
      count > 1 ? " to flagos:" + std::to_string(count - 1) : std::string());
}

} // namespace flagos
