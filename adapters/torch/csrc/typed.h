// SPDX-License-Identifier: Apache-2.0
// The typed twin: the same service as the boxed one for hot operators, without boxing.
// `Typed<at::_ops::add_Tensor>::call` is a kernel with the operator's own signature.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#include <c10/util/SmallVector.h>

#include <tuple>

#include "cpu.h"
#include "route.h"
#include "twin.h"

namespace flagos {

// What went in as what, borrowed for the duration of the call.
struct TypedCall {
  struct Binding {
    c10::TensorImpl* original;
    c10::TensorImpl* alias;
    bool written;
  };
  c10::SmallVector<Binding, 8> bindings;
  c10::DeviceIndex device = 0;

  explicit TypedCall(c10::DeviceIndex index) : device(index) {}

  // The native twin of a flagos tensor; any other tensor itself. Valid as long as the call.
  at::Tensor& alias(const at::Tensor& tensor, bool written = false) {
    if (!tensor.defined() || !is_flagos(tensor)) {
      return const_cast<at::Tensor&>(tensor);
    }
    at::Tensor& native = aliases_.of(tensor);
    bindings.push_back({tensor.unsafeGetTensorImpl(), native.unsafeGetTensorImpl(), written});
    return native;
  }

 private:
  Aliases aliases_;
};

// Finds the device of the arguments; raises when they disagree. CPU scalars (0-dim) are welcome anywhere.
struct DeviceFinder {
  c10::Device device{c10::DeviceType::CPU}; // flagos once one was seen
  const c10::TensorImpl* elsewhere = nullptr;

  void see(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (C10_LIKELY(is_flagos(tensor))) {
      const c10::Device own = impl->device();
      if (C10_UNLIKELY(device.type() == kFlagos && device != own)) {
        raise_mixed_devices(device, own);
      }
      device = own;
    } else if (impl->dim() != 0) {
      elsewhere = impl;
    }
  }
  // A written tensor must be on the device even when it is a scalar.
  void see(at::Tensor& tensor) {
    if (C10_UNLIKELY(tensor.defined() && !is_flagos(tensor))) {
      elsewhere = tensor.unsafeGetTensorImpl();
    } else {
      see(static_cast<const at::Tensor&>(tensor));
    }
  }
  void see(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) {
      see(*tensor);
    }
  }
  void see(at::TensorList tensors) {
    for (const at::Tensor& tensor : tensors) {
      see(tensor);
    }
  }
  void see(const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) {
      see(tensor);
    }
  }
  // Indices may be on the CPU whatever is indexed.
  void see(const c10::List<std::optional<at::Tensor>>& indices) {
    for (const std::optional<at::Tensor> index : indices) {
      if (index.has_value() && index->defined() && is_flagos(*index)) {
        see(*index);
      }
    }
  }
  template <class Other>
  void see(const Other& /*not a tensor*/) {}

  c10::DeviceIndex settle() const {
    if (C10_UNLIKELY(elsewhere != nullptr)) {
      raise_mixed_devices(device, elsewhere->device());
    }
    return device.index();
  }
};

// Argument conversions; each holder lives until the kernel has returned and its results are wrapped.
template <class T>
struct Argument {
  T value;
  Argument(TypedCall& /*call*/, T from) : value(static_cast<T>(from)) {}
  T get() {
    return static_cast<T>(value);
  }
};

template <>
struct Argument<const at::Tensor&> {
  const at::Tensor& value;
  Argument(TypedCall& call, const at::Tensor& from) : value(call.alias(from)) {}
  const at::Tensor& get() {
    return value;
  }
};

template <>
struct Argument<at::Tensor&> {
  at::Tensor& value;
  Argument(TypedCall& call, at::Tensor& from) : value(call.alias(from, /*written=*/true)) {}
  at::Tensor& get() {
    return value;
  }
};

template <>
struct Argument<const std::optional<at::Tensor>&> {
  std::optional<at::Tensor> value;
  Argument(TypedCall& call, const std::optional<at::Tensor>& from) {
    if (from.has_value()) {
      value = call.alias(*from);
    }
  }
  const std::optional<at::Tensor>& get() {
    return value;
  }
};

template <>
struct Argument<at::TensorList> {
  c10::SmallVector<at::Tensor, 8> value;
  Argument(TypedCall& call, at::TensorList from) {
    value.reserve(from.size());
    for (const at::Tensor& tensor : from) {
      value.push_back(call.alias(tensor));
    }
  }
  at::TensorList get() {
    return value;
  }
};

template <>
struct Argument<const at::ITensorListRef&> {
  c10::SmallVector<at::Tensor, 8> value;
  at::ITensorListRef list;
  Argument(TypedCall& call, const at::ITensorListRef& from) {
    value.reserve(from.size());
    for (const at::Tensor& tensor : from) {
      value.push_back(call.alias(tensor));
    }
  }
  const at::ITensorListRef& get() {
    list = at::ITensorListRef(at::TensorList(value)); // not earlier: the holder may have moved
    return list;
  }
};

template <>
struct Argument<const c10::List<std::optional<at::Tensor>>&> {
  c10::List<std::optional<at::Tensor>> value;
  Argument(TypedCall& call, const c10::List<std::optional<at::Tensor>>& from) {
    value.reserve(from.size());
    for (const std::optional<at::Tensor> tensor : from) {
      value.push_back(tensor.has_value() ? std::optional<at::Tensor>(call.alias(*tensor)) : std::nullopt);
    }
  }
  const c10::List<std::optional<at::Tensor>>& get() {
    return value;
  }
};

// The flagos tensor of a native result.
at::Tensor typed_result(const TypedCall& call, at::Tensor native);

inline at::Tensor wrap_typed(const TypedCall& call, at::Tensor native) {
  // Bytes that only the result holds cannot be an argument's.
  if (C10_LIKELY(
          native.defined() && native.device().type() == flagos::native.type && native.storage().use_count() == 1)) {
    return wrap_dense(std::move(native), call.device);
  }
  return typed_result(call, std::move(native));
}

template <class... T, size_t... I>
std::tuple<T...> wrap_tuple(const TypedCall& call, std::tuple<T...> native, std::index_sequence<I...> /*indices*/) {
  return std::tuple<T...>(wrap_typed(call, std::move(std::get<I>(native)))...);
}

template <class... T>
std::tuple<T...> wrap_typed(const TypedCall& call, std::tuple<T...> native) {
  return wrap_tuple(call, std::move(native), std::index_sequence_for<T...>());
}

template <class T>
T wrap_typed(const TypedCall& /*call*/, T native) {
  return native;
}

// Shows the arguments what was done to their aliases.
inline void sync_written(const TypedCall& call) {
  for (const auto& binding : call.bindings) {
    if (binding.written) {
      sync_mutated(binding.original, binding.alias, call.device);
    }
  }
}

template <class Op, class Signature = typename Op::schema>
struct Typed;

template <class Op, class Result, class... Arguments>
struct Typed<Op, Result(Arguments...)> {
  static inline FlagosOpSlot* slot = nullptr;
  static inline const char* name = nullptr;

  static Result call(Arguments... arguments) {
    if (C10_UNLIKELY(enter_op(slot, name))) {
      return at::native::call_fallback_fn_symint<&run_on_cpu, Op>::call(arguments...);
    }
    DeviceFinder finder;
    (finder.see(arguments), ...);
    TypedCall call(finder.settle());
    drain_current_stream(call.device);
    try {
      return serve(call, std::tuple<Argument<Arguments>...>(Argument<Arguments>(call, arguments)...), arguments...);
    } catch (c10::Error& error) {
      name_while_capturing(error, name);
      throw;
    }
  }

 private:
  static Result serve(TypedCall& call, std::tuple<Argument<Arguments>...> converted, Arguments... arguments) {
    return std::apply(
        [&](auto&... argument) -> Result {
          const NativePoolScope pool(call.device);
          const at::AutoDispatchBelowADInplaceOrView below_autograd;
          if constexpr (std::is_same_v<Result, at::Tensor&>) {
            at::Tensor& written = Op::redispatch(native.keys, argument.get()...);
            sync_written(call);
            return mutated(call, written, arguments...);
          } else {
            static_assert(!std::is_void_v<Result>, "lists that are written go through the boxed twin");
            return wrap_typed(call, Op::redispatch(native.keys, argument.get()...));
          }
        },
        converted);
  }

  // The argument that a kernel returned by reference.
  static at::Tensor& mutated(TypedCall& call, const at::Tensor& native, Arguments... arguments) {
    at::Tensor* found = nullptr;
    const auto look = [&](auto& argument) {
      if constexpr (
          std::is_same_v<std::decay_t<decltype(argument)>, at::Tensor> &&
          !std::is_const_v<std::remove_reference_t<decltype(argument)>>) {
        for (const auto& binding : call.bindings) {
          if (binding.original == argument.unsafeGetTensorImpl() && binding.alias == native.unsafeGetTensorImpl()) {
            found = &argument;
          }
        }
      }
    };
    (look(arguments), ...);
    TORCH_INTERNAL_ASSERT(found != nullptr, name, " returned a reference to none of its arguments");
    return *found;
  }
};

} // namespace flagos
