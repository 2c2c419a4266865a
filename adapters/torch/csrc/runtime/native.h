// SPDX-License-Identifier: Apache-2.0
// How torch computes on flagos devices. The vendor's description tells which of three ways it is; it is chosen once,
// when the device is registered.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <string>
#include <vector>

#include "runtime/core.h"

namespace c10 {
class OperatorHandle;
struct IValue;
} // namespace c10

namespace torch::profiler::impl {
struct ProfilerStubs;
}

namespace flagos {

class Registrar;
struct Traits;

class Capturer;

// The native device, whose kernels serve operators: HostNative, TorchNative or LibraryNative.
class Native {
 public:
  // Of the CPU, unless an implementation says otherwise.
  explicit Native(std::string vendor) : vendor(std::move(vendor)) {}
  virtual ~Native() = default;
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

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
  std::string vendor;
  std::string name = "cpu"; // of the native device
  std::string logged_as;    // what dispatch logs call its kernels, where that is not `name`

  const char* name_in_logs() const {
    return logged_as.empty() ? name.c_str() : logged_as.c_str();
  }

  // Memory, streams and generators are those of torch's device `type`.
  bool owned_by_torch = false;
  // Native kernels of `type` run on copies of device memory, because the host cannot touch it.
  bool by_copies = false;

  // Whether kernels run on the calling thread, in device memory.
  bool host_computes() const {
    return !owned_by_torch && !by_copies;
  }

  // The guard (current device, streams, events) and the allocators.
  virtual void register_device() const = 0;
  // The operators with kernels of their own, before typed and boxed kernels are registered for the others.
  virtual void register_operators(Registrar& registrar) const = 0;

  // Serves a call of an operator on dense tensors, without asking the plan.
  virtual void serve(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack, const Traits& traits) const = 0;
  // Copies between flagos tensors and others, of which one at least is on flagos, with broadcasting and conversion.
  virtual void copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) const = 0;

  // Opens what the core does not open.
  virtual void open() const {}
  virtual c10::DeviceIndex device_count() const noexcept;
  virtual bool has_primary_context(c10::DeviceIndex device) const;
  virtual bool is_pinned(const void* data) const;
  // The device of memory; -1 for memory that is not a device's.
  virtual c10::DeviceIndex device_of(void* data) const;
  // Gives a flagos storage `nbytes`, and keeps the first bytes of its contents.
  virtual void resize(c10::StorageImpl* storage, size_t nbytes) const = 0;

  virtual at::Generator default_generator(c10::DeviceIndex device) const;
  virtual at::Generator new_generator(c10::DeviceIndex device) const;

  // Whether the current stream of `device` is being captured into a graph.
  virtual bool is_capturing(c10::DeviceIndex device) const;
  // Whether automatic graphs can follow its calls.
  virtual bool has_graphs() const = 0;
  // For automatic graphs: throws where there are none, and does what they need once.
  virtual void prepare_graphs() const = 0;
  // Captures their work; null where they repeat their calls one by one.
  virtual Capturer* capturer() const {
    return nullptr;
  }
  // Memory from the pool of a device, for its current stream.
  virtual c10::DataPtr planned_block(size_t nbytes, c10::DeviceIndex device) const = 0;
  // Gives memory of the pools that nobody has back to the devices, where that leaves room for one large piece.
  virtual void give_back_cached() const {}
  // Copies device memory on the current stream.
  virtual void copy_bytes(void* to, const void* from, size_t nbytes, c10::DeviceIndex device) const = 0;
  virtual void set_stream(c10::DeviceIndex device, uint64_t stream) const = 0;
  // To be called by a thread that asks for events while others may capture.
  virtual void leave_captures_alone() const {}
  // The native device's own; null for events of the core.
  virtual torch::profiler::impl::ProfilerStubs* profiler() const {
    return nullptr;
  }
};

// Set before anything else of the device is used, for the life of the process.
extern const Native* native;

// torch's own guard of the native device; only where that owns the streams.
inline const c10::impl::DeviceGuardImplInterface* native_guard() {
  return c10::impl::getDeviceGuardImpl(native->type);
}

// The native device beneath flagos:`index`. The CPU is one, whatever the index.
inline c10::Device native_device(c10::DeviceIndex index) {
  return c10::Device(native->type, native->owned_by_torch ? index : c10::DeviceIndex(-1));
}

// Opens the core's device, and the native one.
void open_native_device();

// Has torch open the device, which calls `open_native_device` through the hooks. torch must know that the device is
// open: it answers no question about a device (such as is_pinned) before.
void open_device_slowly();
extern bool device_open;

// Called once, when the device is opened: for what takes time and nobody needs who does not use the device.
extern void (*at_first_use)();

// Opens the device at its first use.
inline void open_device() {
  if (C10_UNLIKELY(!__atomic_load_n(&device_open, __ATOMIC_ACQUIRE))) {
    open_device_slowly();
  }
}

// The number of flagos devices; 0 on any failure.
inline c10::DeviceIndex device_count() noexcept {
  return native->device_count();
}

// Throws unless `index` names a device; -1 is not accepted.
void check_device_index(int64_t index);

} // namespace flagos
