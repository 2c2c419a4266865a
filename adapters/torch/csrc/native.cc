// SPDX-License-Identifier: Apache-2.0
#include "native.h"

#include <ATen/Context.h>

#include <pthread.h>

namespace flagos {

Native native;
bool device_open = false;

void choose_cuda() {
  TORCH_CHECK(
      c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA),
      "flagos: the cuda vendor was chosen, but this torch was built without CUDA; install a CUDA build of torch, or "
      "set FLAGOS_VENDOR=host");
  native.cuda = true;
  native.type = c10::DeviceType::CUDA;
  native.dense = c10::DispatchKey::CUDA;
  native.sparse = c10::DispatchKey::SparseCUDA;
  native.compressed = c10::DispatchKey::SparseCsrCUDA;
  native.quantized = c10::DispatchKey::QuantizedCUDA;
  native.nested = c10::DispatchKey::NestedTensorCUDA;
  native.keys = c10::DispatchKeySet(c10::DispatchKey::CUDA);
  native.vendor = "cuda";
  native.name = "cuda";
}

uint64_t work_of_a_lost_parent = 0;

void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] {
    if (device_open) {
      device_open = false;
      work_of_a_lost_parent = 1;
    }
  });
}

void open_device_slowly() {
  check(core->init());
  if (native.cuda) {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  }
  __atomic_store_n(&device_open, true, __ATOMIC_RELEASE);
}

c10::DeviceIndex device_count() noexcept {
  return native.cuda ? cuda_guard()->deviceCount() : static_cast<c10::DeviceIndex>(core->device_count());
}

} // namespace flagos
