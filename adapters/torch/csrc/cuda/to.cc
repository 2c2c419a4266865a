// SPDX-License-Identifier: Apache-2.0
#include "cuda/to.h"

#include "cuda/register.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_to_copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/to_native.h>
#include <torch/csrc/autograd/graph_task.h>

#include "aten/followed.h"
#include "aten/layout.h"
#include "runtime/below_functionality.h"

namespace flagos {

namespace {

// Set while `to(..., copy=True)` runs, which must not share memory.
thread_local bool copy_wanted = false;

// Whether the conversion changes nothing but the name of the device.
bool only_renames(
    const at::Tensor& self,
    c10::DeviceType other,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> memory_format) {
  if (copy_wanted || !device.has_value() || device->type() != other) {
    return false;
  }
  if (torch::autograd::get_current_graph_task_id() != -1) {
    return false; // inside a backward pass: two leaves may each keep the gradient they get, so these must not share
                  // memory
  }
  const c10::DeviceIndex index = device->has_index() ? device->index() : current_device();
  return (is_flagos(self) || self.is_cuda()) && index == self.device().index() &&
      (!dtype.has_value() || *dtype == self.scalar_type()) && self.layout() == c10::kStrided &&
      (!layout.has_value() || *layout == c10::kStrided) && !pin_memory.value_or(false) && !self.is_quantized() &&
      !self.is_nested() && self.has_storage() &&
      (!memory_format.has_value() || *memory_format == c10::MemoryFormat::Preserve ||
       self.is_contiguous(*memory_format));
}

at::Tensor to_copy(
    const at::Tensor& self,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    bool non_blocking,
    std::optional<c10::MemoryFormat> memory_format) {
  Slot<at::_ops::_to_copy>::enter_without_work();
  if (!is_flagos(self)) { // torch also dispatches by the requested device
    return only_renames(self, kFlagos, dtype, layout, device, pin_memory, memory_format)
        ? share_with_flagos(self)
        : at::compositeexplicitautograd::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format);
  }
  if (only_renames(self, c10::kCUDA, dtype, layout, device, pin_memory, memory_format)) {
    return shared_alias(self);
  }
  if (layout.has_value() && *layout != self.layout()) {
    return at::compositeexplicitautograd::_to_copy(
        self, dtype, layout, device, pin_memory, non_blocking, memory_format); // throws the right error
  }
  const bool to_flagos = !device.has_value() || device->type() == kFlagos;
  c10::Device target = device.value_or(self.device());
  if (to_flagos) {
    target = native_device(target.has_index() ? target.index() : current_device());
    check_device_index(target.index());
  }
  if (are_graphs_wanted() && to_flagos && target.index() == self.device().index()) {
    FollowedCall<at::_ops::_to_copy> call(self, dtype, layout, device, pin_memory, non_blocking, memory_format);
    if (call.serve()) {
      return call.result(self, dtype, layout, device, pin_memory, non_blocking, memory_format);
    }
  }
  launch_pending(Slot<at::_ops::_to_copy>::name);
  lend_to_another_stream(self);
  Aliases aliases;
  const at::Tensor& alias = aliases.read(self);
  const BelowFunctionality below;
  at::Tensor result = at::_ops::_to_copy::redispatch(
      native->keys, alias, dtype, layout, target, pin_memory, non_blocking, memory_format);
  return to_flagos ? wrap_dense(std::move(result), target.index()) : result;
}

at::Tensor to_dtype_layout(
    const at::Tensor& self,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    bool non_blocking,
    bool copy,
    std::optional<c10::MemoryFormat> memory_format) {
  const Scoped wanted(copy_wanted, copy);
  return at::native::to(self, dtype, layout, device, pin_memory, non_blocking, copy, memory_format);
}

at::Tensor to_device(
    const at::Tensor& self,
    c10::Device device,
    c10::ScalarType dtype,
    bool non_blocking,
    bool copy,
    std::optional<c10::MemoryFormat> memory_format) {
  const Scoped wanted(copy_wanted, copy);
  return at::native::to(self, device, dtype, non_blocking, copy, memory_format);
}

at::Tensor to_other(
    const at::Tensor& self,
    const at::Tensor& other,
    bool non_blocking,
    bool copy,
    std::optional<c10::MemoryFormat> memory_format) {
  const Scoped wanted(copy_wanted, copy);
  return at::native::to(self, other, non_blocking, copy, memory_format);
}

at::Tensor renamed(const at::Tensor& tensor, c10::Device device) {
  const Scoped wanted(copy_wanted, false);
  return at::_ops::_to_copy::call(
      tensor, std::nullopt, std::nullopt, device, std::nullopt, /*non_blocking=*/false, std::nullopt);
}

} // namespace

at::Tensor to_cuda_view(const at::Tensor& tensor) {
  return renamed(tensor, c10::Device(c10::kCUDA, tensor.device().index()));
}

at::Tensor shown_to_cuda(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_flagos(tensor)) {
    return tensor;
  }
  // A fake tensor, while compiling, has no memory to alias; `to` follows its own rules.
  return tensor.key_set().has(c10::DispatchKey::Python) ? to_cuda_view(tensor) : alias_of(tensor);
}

at::Tensor to_flagos_view(const at::Tensor& tensor) {
  return renamed(tensor, c10::Device(kFlagos, tensor.device().index()));
}

void register_to(Registrar& registrar) {
  registrar.kernel<at::_ops::_to_copy>(TORCH_FN(to_copy));
  FollowedCall<at::_ops::_to_copy>::note();
  // torch's composites, with a note of `copy`. Those of CUDA tensors too, which may be converted to flagos.
  auto* cuda = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  auto* cuda_autograd =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCUDA, __FILE__, __LINE__);
  for (torch::Library* where : {&registrar.library(), &registrar.autograd(), cuda, cuda_autograd}) {
    where->impl("to.dtype_layout", TORCH_FN(to_dtype_layout));
    where->impl("to.device", TORCH_FN(to_device));
    where->impl("to.other", TORCH_FN(to_other));
  }
}

} // namespace flagos
