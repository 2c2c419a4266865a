// SPDX-License-Identifier: Apache-2.0
#include "runtime/native.h"

#include <ATen/Context.h>

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string>

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
  native.marks =
      c10::DispatchKeySet(c10::BackendComponent::CUDABit) | c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA);
  native.vendor = "cuda";
  native.name = "cuda";
}

void open_native_device() {
  check(core->init());
  if (native.cuda) {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  }
  __atomic_store_n(&device_open, true, __ATOMIC_RELEASE);
}

void open_device_slowly() {
  at::globalContext().lazyInitDevice(kFlagos);
  if (!__atomic_load_n(&device_open, __ATOMIC_ACQUIRE)) {
    open_native_device(); // in a forked child, where torch does not call it again: throws
  }
}

namespace {

// cudaStreamIsCapturing of the CUDA runtime that torch has loaded.
using IsCapturing = int (*)(void* stream, int* status);

IsCapturing find_is_capturing() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t /*size*/, void* context) {
        const bool found = std::strstr(library->dlpi_name, "libcudart.so") != nullptr;
        if (found) {
          *static_cast<std::string*>(context) = library->dlpi_name;
        }
        return found ? 1 : 0;
      },
      &path);
  void* library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? reinterpret_cast<IsCapturing>(dlsym(library, "cudaStreamIsCapturing")) : nullptr;
}

} // namespace

bool is_capturing(c10::DeviceIndex device) {
  static const IsCapturing ask = find_is_capturing();
  TORCH_CHECK(ask != nullptr, "flagos: the CUDA runtime library that torch uses was not found");
  const c10::Stream stream = cuda_guard()->getStream(c10::Device(c10::DeviceType::CUDA, device));
  int status = 0;
  TORCH_CHECK(
      ask(cuda_guard()->getStreamNativeHandle(stream), &status) == 0, "flagos: the state of ", stream, " is unknown");
  return status != 0;
}

c10::DeviceIndex device_count() noexcept {
  return native.cuda ? cuda_guard()->deviceCount() : static_cast<c10::DeviceIndex>(core->device_count());
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
