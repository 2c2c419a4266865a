// SPDX-License-Identifier: Apache-2.0
#include "aten/register.h"

#include <ATen/Context.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_unsafe_view_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>

#include "aten/followed.h"
#include "runtime/allocator.h"

namespace flagos {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_factory(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "flagos: this factory makes strided tensors only");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

c10::DeviceIndex target(std::optional<c10::Device> device) {
  open_device(); // throws in a forked child
  if (!device.has_value() || !device->has_index()) {
    return current_device();
  }
  if (C10_UNLIKELY(device->index() != current_device())) {
    check_device_index(device->index());
  }
  return device->index();
}

// Whether the program asked for deterministic results, for which new memory is filled.
bool fills() {
  const at::Context& context = at::globalContext();
  return C10_UNLIKELY(context.deterministicAlgorithms()) && context.deterministicFillUninitializedMemory();
}

// Fills new memory with NaN or the largest integer then, as torch does.
at::Tensor filled(at::Tensor fresh) {
  if (fills()) {
    at::native::fill_empty_deterministic_(fresh);
  }
  return fresh;
}

at::Tensor empty(
    at::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> memory_format) {
  Slot<at::_ops::empty_memory_format>::enter_without_work();
  check_factory(layout, pin_memory);
  const DeviceScope scope(target(device));
  const auto natively = [&] {
    return at::detail::empty_generic(size, device_allocator(), kKeys, c10::dtype_or_default(dtype), memory_format);
  };
  if (are_graphs_wanted() && !fills()) {
    const c10::SymIntArrayRef symbolic = c10::fromIntArrayRefUnchecked(size);
    FollowedCall<at::_ops::empty_memory_format> call(symbolic, dtype, layout, device, pin_memory, memory_format);
    if (call.serve([&](torch::jit::Stack& stack) { stack = {natively()}; })) {
      return call.result(symbolic, dtype, layout, device, pin_memory, memory_format);
    }
  }
  return filled(natively());
}

at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  Slot<at::_ops::empty_strided>::enter_without_work();
  check_factory(layout, pin_memory);
  const DeviceScope scope(target(device));
  const auto natively = [&] {
    return at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys, c10::dtype_or_default(dtype));
  };
  if (are_graphs_wanted() && !fills()) {
    const c10::SymIntArrayRef sizes = c10::fromIntArrayRefUnchecked(size);
    const c10::SymIntArrayRef strides = c10::fromIntArrayRefUnchecked(stride);
    FollowedCall<at::_ops::empty_strided> call(sizes, strides, dtype, layout, device, pin_memory);
    if (call.serve([&](torch::jit::Stack& stack) { stack = {natively()}; })) {
      return call.result(sizes, strides, dtype, layout, device, pin_memory);
    }
  }
  return filled(natively());
}

// A tensor of zeros without memory, which autograd uses for undefined tangents.
at::Tensor efficient_zero_tensor(
    at::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> /*layout*/,
    std::optional<c10::Device> device,
    std::optional<bool> /*pin_memory*/) {
  Slot<at::_ops::_efficientzerotensor>::enter_without_work();
  auto allocator = at::native::ZeroTensorAllocator(c10::Device(kFlagos, target(device)));
  constexpr c10::DispatchKeySet keys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor});
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  Slot<at::_ops::view>::enter_without_work();
  return at::native::view(self, size);
}

at::Tensor as_strided(
    const at::Tensor& self,
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<int64_t> storage_offset) {
  Slot<at::_ops::as_strided>::enter_without_work();
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  Slot<at::_ops::_reshape_alias>::enter_without_work();
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor unsafe_view(const at::Tensor& self, at::IntArrayRef size) {
  Slot<at::_ops::_unsafe_view>::enter_without_work();
  return at::native::_unsafe_view(self, size);
}

// torch's own condition for two tensors of built-in devices: the same kind of TensorImpl. torch answers no for others.
// `Module.to` then makes new parameters, one for each place where a tied parameter appears, in which an optimizer that
// was built before the move has no part.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return self.layout() == from.layout() && !self.is_meta() && !from.is_meta();
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  Slot<at::_ops::unfold>::enter_without_work();
  return at::native::unfold(self, dimension, size, step);
}

} // namespace

void register_factories_and_views(Registrar& registrar) {
  registrar.kernel<at::_ops::empty_memory_format>(TORCH_FN(empty));
  registrar.kernel<at::_ops::empty_strided>(TORCH_FN(empty_strided));
  FollowedCall<at::_ops::empty_memory_format>::note();
  FollowedCall<at::_ops::empty_strided>::note();
  registrar.kernel<at::_ops::_efficientzerotensor>(TORCH_FN(efficient_zero_tensor));
  registrar.kernel<at::_ops::view>(TORCH_FN(view));
  registrar.kernel<at::_ops::as_strided>(TORCH_FN(as_strided));
  registrar.kernel<at::_ops::_reshape_alias>(TORCH_FN(reshape_alias));
  registrar.kernel<at::_ops::_unsafe_view>(TORCH_FN(unsafe_view));
  registrar.kernel<at::_ops::unfold>(TORCH_FN(unfold));
  // A question about tensors and no call: it is not counted, and no route is for it.
  registrar.library().impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

} // namespace flagos
