// SPDX-License-Identifier: Apache-2.0
// The native device on which flagos operators are served: the CPU under the host vendor, CUDA under the cuda vendor.
// Chosen once, when the device is registered.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "runtime/core.h"

namespace flagos {

struct Native {
  bool cuda = false;
  c10::DeviceType type = c10::DeviceType::CPU;
  c10::DispatchKey dense = c10::DispatchKey::CPU;
  c10::DispatchKey sparse = c10::DispatchKey::SparseCPU;
  c10::DispatchKey compressed = c10::DispatchKey::SparseCsrCPU;
  c10::DispatchKey quantized = c10::DispatchKey::QuantizedCPU;
  c10::DispatchKey nested = c10::DispatchKey::NestedTensorCPU;
  c10::DispatchKeySet keys{c10::DispatchKey::CPU}; // of `dense`
  // The keys that only tensors of this backend have.
  c10::DispatchKeySet marks =
      c10::DispatchKeySet(c10::BackendComponent::CPUBit) | c10::DispatchKeySet(c10::DispatchKey::AutocastCPU);
  const char* vendor = "host";
  const char* name = "cpu"; // of the native device
};

extern Native native;

// Serves flagos with CUDA. Fails when this torch was built without it.
void choose_cuda();

// The native device beneath flagos:`index`. The CPU is one, whatever the index.
inline c10::Device native_device(c10::DeviceIndex index) {
  return c10::Device(native.type, native.cuda ? index : c10::DeviceIndex(-1));
}

// torch's own guard of CUDA devices; only under the cuda vendor.
inline const c10::impl::DeviceGuardImplInterface* cuda_guard() {
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
}

// Opens the core's device; under the cuda vendor torch's CUDA state too.
void open_native_device();

// Has torch open the device, which calls `open_native_device` through the hooks. torch must know that the device is
// open: it answers no question about a device (such as is_pinned) before.
void open_device_slowly();
extern bool device_open;

// Opens the device at its first use.
inline void open_device() {
  if (C10_UNLIKELY(!__atomic_load_n(&device_open, __ATOMIC_ACQUIRE))) {
    open_device_slowly();
  }
}

// Whether the current CUDA stream of `device` is being captured into a graph.
bool is_capturing(c10::DeviceIndex device);

// The number of flagos devices; 0 on any failure.
c10::DeviceIndex device_count() noexcept;

// Throws unless `index` names a device; -1 is not accepted.
void check_device_index(int64_t index);

} // namespace flagos
