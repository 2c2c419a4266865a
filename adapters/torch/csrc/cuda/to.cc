// SPDX-License-Identifier: Apache-2.0
#include "cuda/to.h"

#include "cuda/register.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_to_copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/to_native.h>
#include <torch/csrc/autograd/graph_task.h>

#include "aten/layout.h"
#include "aten/route.h"

namespace flagos {

namespace {

constexpr c10::DeviceType kCuda = c10::DeviceType::CUDA;

FlagosOpSlot* to_copy_slot = nullptr;

// Set while `to(..., copy=True)` runs: then memory is not shared.
thread_local bool copy_wanted = false;

class CopyWanted {
 public:
  explicit CopyWanted(bool wanted) : previous_(copy_wanted) {
    copy_wanted = wanted;
  }
  ~CopyWanted() {
    copy_wanted = previous_;
  }
  CopyWanted(const CopyWanted&) = delete;
  CopyWanted& operator=(const CopyWanted&) = delete;

 private:
  bool previous_;
};

// Shares what in-place operators count, so that autograd notices a write through either tensor.
void share_version(const at::Tensor& from, const at::Tensor& to) {
  if (!from.is_inference() && !to.is_inference()) {
    to.unsafeGetTensorImpl()->set_version_counter(from.unsafeGetTensorImpl()->version_counter());
  }
}

void copy_metadata(const c10::TensorImpl* from, c10::TensorImpl* to) {
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  to->_set_conj(from->is_conj());
  to->_set_neg(from->is_neg());
  if (from->has_named_tensor_meta()) {
    to->set_named_tensor_meta(from->named_tensor_meta()->clone());
  }
}

c10::DispatchKeySet dense_keys(const at::Tensor& like, c10::DispatchKey key) {
  return like._is_zerotensor() ? c10::DispatchKeySet({key, c10::DispatchKey::ZeroTensor}) : c10::DispatchKeySet(key);
}

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
    return false; // two leaves may take over one gradient as their own: theirs must not share memory
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
  enter_op(to_copy_slot, "aten::_to_copy");
  if (!is_flagos(self)) { // torch dispatches by the device that is asked for, too
    return only_renames(self, kFlagos, dtype, layout, device, pin_memory, memory_format)
        ? share_with_flagos(self)
        : at::compositeexplicitautograd::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format);
  }
  if (only_renames(self, kCuda, dtype, layout, device, pin_memory, memory_format)) {
    return share_with_cuda(self);
  }
  if (layout.has_value() && *layout != self.layout()) {
    return at::compositeexplicitautograd::_to_copy(
        self, dtype, layout, device, pin_memory, non_blocking, memory_format); // says what is wrong
  }
  const bool to_flagos = !device.has_value() || device->type() == kFlagos;
  c10::Device target = device.value_or(self.device());
  if (to_flagos) {
    target = native_device(target.has_index() ? target.index() : current_device());
    check_device_index(target.index());
  }
  Aliases aliases;
  const at::Tensor& alias = aliases.of(self);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor result = at::_ops::_to_copy::redispatch(
      native.keys, alias, dtype, layout, target, pin_memory, non_blocking, memory_format);
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
  const CopyWanted wanted(copy);
  return at::native::to(self, dtype, layout, device, pin_memory, non_blocking, copy, memory_format);
}

at::Tensor to_device(
    const at::Tensor& self,
    c10::Device device,
    c10::ScalarType dtype,
    bool non_blocking,
    bool copy,
    std::optional<c10::MemoryFormat> memory_format) {
  const CopyWanted wanted(copy);
  return at::native::to(self, device, dtype, non_blocking, copy, memory_format);
}

at::Tensor to_other(
    const at::Tensor& self,
    const at::Tensor& other,
    bool non_blocking,
    bool copy,
    std::optional<c10::MemoryFormat> memory_format) {
  const CopyWanted wanted(copy);
  return at::native::to(self, other, non_blocking, copy, memory_format);
}

at::Tensor renamed(const at::Tensor& tensor, c10::Device device) {
  const CopyWanted wanted(false);
  return at::_ops::_to_copy::call(
      tensor, std::nullopt, std::nullopt, device, std::nullopt, /*non_blocking=*/false, std::nullopt);
}

} // namespace

at::Tensor share_with_cuda(const at::Tensor& self) {
  auto shared = at::detail::make_tensor<c10::TensorImpl>(
      twin_storage(self.storage()), dense_keys(self, c10::DispatchKey::CUDA), self.dtype());
  copy_metadata(self.unsafeGetTensorImpl(), shared.unsafeGetTensorImpl());
  share_version(self, shared);
  return shared;
}

at::Tensor share_with_flagos(const at::Tensor& self) {
  open_device();
  auto shared = at::detail::make_tensor<c10::TensorImpl>(
      wrap_storage(self.storage(), self.device().index()),
      dense_keys(self, c10::DispatchKey::PrivateUse1),
      self.dtype());
  copy_metadata(self.unsafeGetTensorImpl(), shared.unsafeGetTensorImpl());
  share_version(self, shared);
  return shared;
}

at::Tensor to_cuda_view(const at::Tensor& tensor) {
  return renamed(tensor, c10::Device(kCuda, tensor.device().index()));
}

at::Tensor shown_to_cuda(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_flagos(tensor)) {
    return tensor;
  }
  // A tensor without memory, while compiling, is converted by its own rules.
  return tensor.key_set().has(c10::DispatchKey::Python) ? to_cuda_view(tensor) : alias_of(tensor);
}

at::Tensor to_flagos_view(const at::Tensor& tensor) {
  return renamed(tensor, c10::Device(kFlagos, tensor.device().index()));
}

void register_to(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered) {
  if (!native.cuda) {
    return; // the composite does for the host vendor
  }
  to_copy_slot = op_slot("aten::_to_copy");
  library.impl("_to_copy", TORCH_FN(to_copy));
  registered.emplace_back("aten::_to_copy");
  // Composites: below autograd in inference mode, above it otherwise. Those of CUDA tensors too, as the way to flagos
  // is theirs; they do what torch's own do.
  auto* cuda = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  auto* cuda_autograd =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCUDA, __FILE__, __LINE__);
  for (torch::Library* where : {&library, &autograd, cuda, cuda_autograd}) {
    where->impl("to.dtype_layout", TORCH_FN(to_dtype_layout));
    where->impl("to.device", TORCH_FN(to_device));
    where->impl("to.other", TORCH_FN(to_other));
  }
}

} // namespace flagos
