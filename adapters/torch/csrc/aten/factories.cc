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

#include "aten/route.h"
#include "aten/twin.h"

namespace flagos {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// One slot per registered name, known at compile time through the tag.
template <int kTag>
struct Slot {
  static inline FlagosOpSlot* slot = nullptr;
  static inline const char* name = nullptr;
  static void enter() {
    enter_op(slot, name);
  }
};

enum Tag : int { kEmpty, kEmptyStrided, kZeroTensor, kView, kAsStrided, kReshapeAlias, kUnfold, kUnsafeView };

void check_factory(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "flagos: this factory makes strided tensors only");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

c10::DeviceIndex target(std::optional<c10::Device> device) {
  open_device(); // a forked child is told here that it has none
  if (!device.has_value() || !device->has_index()) {
    return current_device();
  }
  if (C10_UNLIKELY(device->index() != current_device())) {
    check_device_index(device->index());
  }
  return device->index();
}

// What is not initialised is a wrong number that shows, where the program wants every run to be the same.
at::Tensor filled(at::Tensor fresh) {
  const at::Context& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms()) && context.deterministicFillUninitializedMemory()) {
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
  Slot<kEmpty>::enter();
  check_factory(layout, pin_memory);
  const DeviceScope scope(target(device));
  return filled(
      at::detail::empty_generic(size, device_allocator(), kKeys, c10::dtype_or_default(dtype), memory_format));
}

at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  Slot<kEmptyStrided>::enter();
  check_factory(layout, pin_memory);
  const DeviceScope scope(target(device));
  return filled(
      at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys, c10::dtype_or_default(dtype)));
}

// A tensor of zeros without memory, as autograd uses it for undefined tangents.
at::Tensor efficient_zero_tensor(
    at::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> /*layout*/,
    std::optional<c10::Device> device,
    std::optional<bool> /*pin_memory*/) {
  Slot<kZeroTensor>::enter();
  auto allocator = at::native::ZeroTensorAllocator(c10::Device(kFlagos, target(device)));
  constexpr c10::DispatchKeySet keys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor});
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  Slot<kView>::enter();
  return at::native::view(self, size);
}

at::Tensor as_strided(
    const at::Tensor& self,
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<int64_t> storage_offset) {
  Slot<kAsStrided>::enter();
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  Slot<kReshapeAlias>::enter();
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor unsafe_view(const at::Tensor& self, at::IntArrayRef size) {
  Slot<kUnsafeView>::enter();
  return at::native::_unsafe_view(self, size);
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  Slot<kUnfold>::enter();
  return at::native::unfold(self, dimension, size, step);
}

} // namespace

void register_factories_and_views(torch::Library& library, std::vector<std::string>& registered) {
#define FLAGOS_NATIVE(tag, overload, function)  \
  Slot<tag>::name = "aten::" overload;          \
  Slot<tag>::slot = op_slot("aten::" overload); \
  library.impl(overload, TORCH_FN(function));   \
  registered.emplace_back("aten::" overload)

  FLAGOS_NATIVE(kEmpty, "empty.memory_format", empty);
  FLAGOS_NATIVE(kEmptyStrided, "empty_strided", empty_strided);
  FLAGOS_NATIVE(kZeroTensor, "_efficientzerotensor", efficient_zero_tensor);
  FLAGOS_NATIVE(kView, "view", view);
  FLAGOS_NATIVE(kAsStrided, "as_strided", as_strided);
  FLAGOS_NATIVE(kReshapeAlias, "_reshape_alias", reshape_alias);
  FLAGOS_NATIVE(kUnsafeView, "_unsafe_view", unsafe_view);
  FLAGOS_NATIVE(kUnfold, "unfold", unfold);
#undef FLAGOS_NATIVE
}

} // namespace flagos
