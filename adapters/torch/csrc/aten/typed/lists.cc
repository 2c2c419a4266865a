// SPDX-License-Identifier: Apache-2.0
// Typed kernels of what optimizers, gradient clipping and gradient scaling call on lists.
#include "aten/typed/typed.h"

namespace flagos {

namespace {

// Whether the kernel, not torch, counts the writes.
template <class Op>
constexpr bool kCountsWrites = particulars_of(Op::name).has(flagos::kCountsVersions);

// A list that an operator writes.
template <bool kCounts>
class WrittenList {
 public:
  WrittenList(TypedCall& call, at::TensorList from) : originals_(from) {
    aliases_.reserve(from.size());
    for (const at::Tensor& tensor : from) {
      if constexpr (kCounts) {
        if (C10_LIKELY(tensor.defined())) {
          check_writable(tensor.unsafeGetTensorImpl());
        }
      }
      aliases_.push_back(native->owned_by_torch ? call.counted_alias(tensor) : call.alias(tensor));
    }
  }

  at::TensorList get() const {
    return aliases_.get();
  }

  // Gives the tensors what the kernel changed in their aliases, and raises their version counters.
  void settle(c10::DeviceIndex device) {
    const at::TensorList aliases = aliases_.get();
    for (size_t i = 0; i < originals_.size(); ++i) {
      c10::TensorImpl *original = originals_[i].unsafeGetTensorImpl(), *alias = aliases[i].unsafeGetTensorImpl();
      if (C10_LIKELY(original != alias)) {
        sync_mutated(original, alias, device);
      }
      if constexpr (kCounts) {
        if (C10_LIKELY(originals_[i].defined() && original->version_counter().enabled())) {
          original->bump_version();
        }
      }
    }
  }

 private:
  at::TensorList originals_;
  BorrowedList aliases_;
};

template <bool kCounts>
void settle(WrittenList<kCounts>& list, c10::DeviceIndex device) {
  list.settle(device);
}

template <class T>
void settle(Argument<T>& argument, c10::DeviceIndex device) {
  sync_written(argument, device);
}

// As `Typed`, for operators without a result that write their first arguments, which are lists.
template <class Op, size_t kWritten, class Signature = typename Op::schema>
struct TypedLists;

template <class Op, size_t kWritten, class... Arguments>
struct TypedLists<Op, kWritten, void(Arguments...)> {
  static void call(Arguments... arguments) {
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
        return;
      }
    }
    convert(std::index_sequence_for<Arguments...>(), arguments...);
  }

 private:
  template <size_t kPlace, class T>
  using Converted = std::conditional_t<(kPlace < kWritten), WrittenList<kCountsWrites<Op>>, Argument<T>>;

  template <size_t... I>
  static void convert(std::index_sequence<I...> /*places*/, Arguments... arguments) {
    TypedCall call;
    std::tuple<Converted<I, Arguments>...> converted{Converted<I, Arguments>(call, arguments)...};
    call.settle();
    drain_current_stream(call.device());
    try {
      std::apply([&](auto&... argument) { serve(call, argument...); }, converted);
    } catch (c10::Error& error) {
      name_while_capturing(error, Slot<Op>::name);
      throw;
    }
  }

  template <class... T>
  static void serve(const TypedCall& call, T&... converted) {
    const NativePoolScope pool(call.device());
    const BelowFunctionality below;
    try {
      Op::redispatch(native->keys, converted.get()...);
    } catch (...) {
      (flagos::settle(converted, call.device()), ...); // the kernel may have written some tensors before it failed
      throw;
    }
    (flagos::settle(converted, call.device()), ...);
  }
};

template <size_t kWritten, class... Ops>
void register_lists(Registrar& registrar) {
  (register_if_native<Ops>(registrar, TORCH_FN((TypedLists<Ops, kWritten>::call))), ...);
}

} // namespace

void register_typed_lists(Registrar& registrar) {
  register_lists<
      1,
      ops::_foreach_add__Scalar,
      ops::_foreach_add__List,
      ops::_foreach_add__ScalarList,
      ops::_foreach_add__Tensor,
      ops::_foreach_sub__Scalar,
      ops::_foreach_sub__List,
      ops::_foreach_mul__Scalar,
      ops::_foreach_mul__List,
      ops::_foreach_mul__ScalarList,
      ops::_foreach_mul__Tensor,
      ops::_foreach_div__Scalar,
      ops::_foreach_div__List,
      ops::_foreach_div__ScalarList,
      ops::_foreach_lerp__Scalar,
      ops::_foreach_addcmul__Scalar,
      ops::_foreach_addcmul__ScalarList,
      ops::_foreach_addcdiv__Scalar,
      ops::_foreach_addcdiv__ScalarList,
      ops::_foreach_maximum__List,
      ops::_foreach_sqrt_,
      ops::_foreach_neg_,
      ops::_foreach_abs_,
      ops::_foreach_reciprocal_,
      ops::_foreach_zero_,
      ops::_amp_foreach_non_finite_check_and_unscale_>(registrar);
  register_lists<3, ops::_fused_sgd_>(registrar);
  register_lists<5, ops::_fused_adam_, ops::_fused_adamw_>(registrar);
  register_typed<
      ops::_foreach_add_Scalar,
      ops::_foreach_add_List,
      ops::_foreach_sub_List,
      ops::_foreach_mul_Scalar,
      ops::_foreach_mul_List,
      ops::_foreach_mul_Tensor,
      ops::_foreach_div_Scalar,
      ops::_foreach_div_List,
      ops::_foreach_lerp_Scalar,
      ops::_foreach_pow_ScalarAndTensor,
      ops::_foreach_maximum_List,
      ops::_foreach_sqrt,
      ops::_foreach_neg,
      ops::_foreach_abs,
      ops::_foreach_sign,
      ops::_foreach_norm_Scalar,
      ops::_amp_update_scale_>(registrar);
}

} // namespace flagos
