// SPDX-License-Identifier: Apache-2.0
// The typed twin: the same service as the boxed one for hot operators, without boxing.
// `Typed<at::_ops::add_Tensor>::call` is a kernel with the operator's own signature.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#include <c10/util/SmallVector.h>

#include <tuple>

#include "aten/cpu.h"
#include "aten/route.h"
#include "aten/twin.h"

namespace flagos {

// What went in as what, borrowed for the duration of the call, and the device it is on.
class TypedCall {
 public:
  // The native twin of a flagos tensor; any other tensor itself. Valid as long as the call. Sees where the tensor is:
  // CPU scalars (0-dim) are welcome anywhere.
  at::Tensor& alias(const at::Tensor& tensor) {
    if (C10_UNLIKELY(!is_flagos(tensor))) {
      if (tensor.defined() && tensor.dim() != 0) {
        elsewhere_ = tensor.unsafeGetTensorImpl();
      }
      return const_cast<at::Tensor&>(tensor);
    }
    return alias_here(tensor);
  }
  // A written tensor must be on the device even when it is a scalar.
  at::Tensor& written(at::Tensor& tensor) {
    if (C10_UNLIKELY(!is_flagos(tensor))) {
      if (tensor.defined()) {
        elsewhere_ = tensor.unsafeGetTensorImpl();
      }
      return tensor;
    }
    return written_here(tensor);
  }
  // Indices may be on the CPU whatever is indexed.
  at::Tensor& index(const at::Tensor& tensor) {
    return is_flagos(tensor) ? alias_here(tensor) : const_cast<at::Tensor&>(tensor);
  }

  // Raises when the arguments are not on one device. To be called after all of them.
  void settle() const {
    if (C10_UNLIKELY(elsewhere_ != nullptr)) {
      raise_mixed_devices(device_, elsewhere_->device());
    }
  }

  c10::DeviceIndex device() const {
    return device_.index();
  }

  const Aliases& aliases() const {
    return aliases_;
  }

 private:
  at::Tensor& alias_here(const at::Tensor& tensor);
  at::Tensor& written_here(const at::Tensor& tensor);

  Aliases aliases_;
  // What is written and read too is one tensor to the kernel, as it is to the caller: kernels ask.
  const c10::TensorImpl* written_ = nullptr;
  at::Tensor* written_alias_ = nullptr;
  c10::Device device_{c10::DeviceType::CPU}; // flagos once one was seen
  const c10::TensorImpl* elsewhere_ = nullptr;
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
  at::Tensor& original;
  at::Tensor& value;
  Argument(TypedCall& call, at::Tensor& from) : original(from), value(call.written(from)) {}
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
      value.push_back(tensor.has_value() ? std::optional<at::Tensor>(call.index(*tensor)) : std::nullopt);
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
    return wrap_dense(std::move(native), call.device());
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

// Shows an argument what was done to its alias.
template <class T>
void sync_written(Argument<T>& /*not written*/, c10::DeviceIndex /*device*/) {}

inline void sync_written(Argument<at::Tensor&>& argument, c10::DeviceIndex device) {
  if (C10_LIKELY(&argument.original != &argument.value)) {
    sync_mutated(argument.original.unsafeGetTensorImpl(), argument.value.unsafeGetTensorImpl(), device);
  }
}

// The argument whose alias a kernel returned by reference; null when it is another.
template <class T>
at::Tensor* written_as(Argument<T>& /*not written*/, const at::Tensor& /*native*/) {
  return nullptr;
}

inline at::Tensor* written_as(Argument<at::Tensor&>& argument, const at::Tensor& native) {
  return argument.value.is_same(native) ? &argument.original : nullptr;
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
    TypedCall call;
    std::tuple<Argument<Arguments>...> converted{Argument<Arguments>(call, arguments)...};
    call.settle();
    drain_current_stream(call.device());
    try {
      return std::apply([&](auto&... argument) -> Result { return serve(call, argument...); }, converted);
    } catch (c10::Error& error) {
      name_while_capturing(error, name);
      throw;
    }
  }

 private:
  static Result serve(const TypedCall& call, Argument<Arguments>&... arguments) {
    const NativePoolScope pool(call.device());
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if constexpr (std::is_same_v<Result, at::Tensor&>) {
      at::Tensor& native_result = [&]() -> at::Tensor& {
        try {
          return Op::redispatch(native.keys, arguments.get()...);
        } catch (...) {
          (sync_written(arguments, call.device()), ...); // it may have been resized before
          throw;
        }
      }();
      (sync_written(arguments, call.device()), ...);
      at::Tensor* result = nullptr;
      ((result = result != nullptr ? result : written_as(arguments, native_result)), ...);
      TORCH_INTERNAL_ASSERT(result != nullptr, name, " returned a reference to none of its arguments");
      return *result;
    } else {
      static_assert(!std::is_void_v<Result>, "lists that are written go through the boxed twin");
      return wrap_typed(call, Op::redispatch(native.keys, arguments.get()...));
    }
  }
};

} // namespace flagos
