// SPDX-License-Identifier: Apache-2.0
// Typed kernels: the fast path of frequent operators, which does what the boxed kernel does without boxing.
// `Typed<at::_ops::add_Tensor>::call` is a kernel with the operator's own signature.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/native/CPUFallback.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <tuple>

#include "aten/alias.h"
#include "aten/boxed.h"
#include "aten/cpu.h"
#include "aten/followed.h"
#include "aten/register.h"
#include "aten/traced.h"
#include "runtime/below_functionality.h"

namespace flagos {

// The aliases of one call's arguments, and the device that the arguments are on.
class TypedCall {
 public:
  // The alias of a flagos tensor, any other tensor itself; valid as long as the call. Notes tensors that are not on
  // flagos, except 0-dimensional ones: scalars on the CPU go with every device.
  at::Tensor& alias(const at::Tensor& tensor) {
    if (C10_UNLIKELY(!is_flagos(tensor))) {
      if (tensor.defined() && tensor.dim() != 0) {
        elsewhere_ = tensor.unsafeGetTensorImpl();
      }
      return const_cast<at::Tensor&>(tensor);
    }
    return alias_here(tensor);
  }
  // The same for a tensor that is written, which must be on flagos even when it is a scalar.
  at::Tensor& written(at::Tensor& tensor) {
    if (C10_UNLIKELY(!is_flagos(tensor))) {
      if (tensor.defined()) {
        elsewhere_ = tensor.unsafeGetTensorImpl();
      }
      return tensor;
    }
    return written_here(tensor);
  }
  // As `alias`, a `counted_alias`: for a tensor of a list that kernels write and count.
  at::Tensor& counted_alias(const at::Tensor& tensor);
  // The same for indices, which may be on the CPU whatever they index.
  at::Tensor& index(const at::Tensor& tensor) {
    return is_flagos(tensor) ? alias_here(tensor) : const_cast<at::Tensor&>(tensor);
  }

  // Throws if the arguments are not on one device. To be called after all of them were converted.
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
  void see_device(const at::Tensor& tensor);
  at::Tensor& alias_here(const at::Tensor& tensor);
  at::Tensor& written_here(const at::Tensor& tensor);

  Aliases aliases_;
  // The tensor that is written and its alias. If it is also read, it gets the same alias: kernels check for that.
  const c10::TensorImpl* written_ = nullptr;
  at::Tensor* written_alias_ = nullptr;
  c10::Device device_{c10::DeviceType::CPU}; // that of the flagos arguments; CPU without any
  const c10::TensorImpl* elsewhere_ = nullptr;
};

// Tensors that the call or its caller holds, as a list. It holds none of them itself.
class BorrowedList {
 public:
  BorrowedList() = default;
  BorrowedList(BorrowedList&&) = default;
  BorrowedList& operator=(BorrowedList&&) = delete;
  ~BorrowedList() {
    for (at::Tensor& tensor : tensors_) {
      Borrowing::destroyBorrow(tensor);
    }
  }

  void reserve(size_t size) {
    tensors_.reserve(size);
  }
  void push_back(const at::Tensor& tensor) {
    tensors_.push_back(Borrowing::createBorrow(tensor));
  }
  at::TensorList get() const {
    return tensors_;
  }

 private:
  using Borrowing = c10::MaybeOwnedTraits<at::Tensor>;

  c10::SmallVector<at::Tensor, 8> tensors_;
};

// Converts one argument for the native kernel, and holds it until the results are wrapped.
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
  using Borrowing = c10::MaybeOwnedTraits<at::Tensor>;

  std::optional<at::Tensor> value; // not held by it, as in BorrowedList
  Argument(TypedCall& call, const std::optional<at::Tensor>& from) {
    if (from.has_value()) {
      value.emplace(Borrowing::createBorrow(call.alias(*from)));
    }
  }
  Argument(Argument&&) = default;
  ~Argument() {
    if (value.has_value()) {
      Borrowing::destroyBorrow(*value);
    }
  }
  const std::optional<at::Tensor>& get() {
    return value;
  }
};

template <>
struct Argument<at::TensorList> {
  BorrowedList value;
  Argument(TypedCall& call, at::TensorList from) {
    value.reserve(from.size());
    for (const at::Tensor& tensor : from) {
      value.push_back(call.alias(tensor));
    }
  }
  at::TensorList get() {
    return value.get();
  }
};

template <>
struct Argument<const at::ITensorListRef&> {
  BorrowedList value;
  at::ITensorListRef list;
  Argument(TypedCall& call, const at::ITensorListRef& from) {
    value.reserve(from.size());
    for (const at::Tensor& tensor : from) {
      value.push_back(call.alias(tensor));
    }
  }
  const at::ITensorListRef& get() {
    list = at::ITensorListRef(value.get()); // built here, because the holder may have been moved before
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
  // Memory that only the result holds cannot be an argument's. An alias, which may borrow its memory, is also the
  // pool's.
  if (C10_LIKELY(
          native.defined() && native.device().type() == flagos::native->type && native.storage().use_count() == 1 &&
          native.use_count() == 1)) {
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

// The tensors of a list have memory of their own, or lie behind one another in one buffer.
inline std::vector<at::Tensor> wrap_typed(const TypedCall& call, std::vector<at::Tensor> native) {
  const at::Tensor* before = nullptr;
  for (at::Tensor& tensor : native) {
    const bool shares = before != nullptr && tensor.defined() && tensor.has_storage() &&
        twin_of(before->storage().data_ptr()) == tensor.storage().unsafeGetStorageImpl();
    tensor = C10_UNLIKELY(shares) ? view_of(tensor, before->storage()) : wrap_typed(call, std::move(tensor));
    before = tensor.defined() && tensor.has_storage() ? &tensor : nullptr;
  }
  return native;
}

template <class T>
T wrap_typed(const TypedCall& /*call*/, T native) {
  return native;
}

// Gives a written argument what the kernel changed in its alias.
template <class T>
void sync_written(Argument<T>& /*not written*/, c10::DeviceIndex /*device*/) {}

inline void sync_written(Argument<at::Tensor&>& argument, c10::DeviceIndex device) {
  if (C10_LIKELY(&argument.original != &argument.value)) {
    sync_mutated(argument.original.unsafeGetTensorImpl(), argument.value.unsafeGetTensorImpl(), device);
  }
}

// The argument if the kernel returned its alias by reference, else null.
template <class T>
at::Tensor* written_as(Argument<T>& /*not written*/, const at::Tensor& /*native*/) {
  return nullptr;
}

inline at::Tensor* written_as(Argument<at::Tensor&>& argument, const at::Tensor& native) {
  return argument.value.is_same(native) ? &argument.original : nullptr;
}

template <class T>
bool differs(FirstDevice& /*first*/, const T& /*no list*/) {
  return false;
}

inline bool differs(FirstDevice& first, const at::TensorList& list) {
  return std::any_of(list.begin(), list.end(), [&](const at::Tensor& tensor) { return first.differs(tensor); });
}

// Whether the lists among an operator's arguments have tensors on several devices, and the operator takes that.
template <class Op, class... Arguments>
bool has_mixed_lists(const Arguments&... arguments) {
  if constexpr (particulars_of(Op::name).has(kTakesMixedLists)) {
    FirstDevice first;
    return (differs(first, arguments) || ...);
  }
  return false;
}

template <class Op, class Signature = typename Op::schema>
struct Typed;

template <class Op, class Result, class... Arguments>
struct Typed<Op, Result(Arguments...)> {
  static Result call(Arguments... arguments) {
    if constexpr (particulars_of(Op::name).has(kTracedInside)) {
      if (C10_UNLIKELY(is_tracing())) {
        return Op::redispatch(native->keys, arguments...); // torch's composite, on the tensors themselves
      }
    }
    if (C10_UNLIKELY(Slot<Op>::enter_without_work())) {
      launch_before_unseen_call(Slot<Op>::name);
      return at::native::call_fallback_fn_symint<&run_on_cpu, Op>::call(arguments...);
    }
    if (C10_UNLIKELY(has_mixed_lists<Op>(arguments...))) {
      return Op::redispatch(kTensorByTensor, arguments...);
    }
    if (are_graphs_wanted()) {
      FollowedCall<Op> followed(arguments...);
      if (followed.serve()) {
        return followed.result(arguments...);
      }
    }
    TypedCall call;
    std::tuple<Argument<Arguments>...> converted{Argument<Arguments>(call, arguments)...};
    call.settle();
    drain_current_stream(call.device());
    try {
      return std::apply([&](auto&... argument) -> Result { return serve(call, argument...); }, converted);
    } catch (c10::Error& error) {
      name_while_capturing(error, Slot<Op>::name);
      throw;
    }
  }

 private:
  static Result serve(const TypedCall& call, Argument<Arguments>&... arguments) {
    const NativePoolScope pool(call.device());
    const BelowFunctionality below;
    if constexpr (std::is_same_v<Result, at::Tensor&>) {
      at::Tensor& native_result = [&]() -> at::Tensor& {
        try {
          return Op::redispatch(native->keys, arguments.get()...);
        } catch (...) {
          (sync_written(arguments, call.device()), ...); // the kernel may have resized it before it failed
          throw;
        }
      }();
      (sync_written(arguments, call.device()), ...);
      at::Tensor* result = nullptr;
      ((result = result != nullptr ? result : written_as(arguments, native_result)), ...);
      TORCH_INTERNAL_ASSERT(result != nullptr, Slot<Op>::name, " returned a reference to none of its arguments");
      return *result;
    } else {
      static_assert(!std::is_void_v<Result>, "operators that write lists are in lists.cc, or have boxed kernels");
      return wrap_typed(call, Op::redispatch(native->keys, arguments.get()...));
    }
  }
};

// Registers a typed kernel if the native device has a kernel for the operator.
template <class Op, class Kernel>
void register_if_native(Registrar& registrar, Kernel kernel) {
  if (has_kernel(c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name), native->dense)) {
    registrar.kernel<Op>(kernel);
    FollowedCall<Op>::note();
  }
}

template <class... Ops>
void register_typed(Registrar& registrar) {
  (register_if_native<Ops>(registrar, TORCH_FN((Typed<Ops>::call))), ...);
}

namespace ops = at::_ops;

} // namespace flagos
