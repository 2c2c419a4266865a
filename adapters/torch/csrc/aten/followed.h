// SPDX-License-Identifier: Apache-2.0
// Typed kernels and automatic graphs: the call boxed, for `following::Turn`.
#pragma once

#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/empty_strided_ops.h>

#include <type_traits>

#include "aten/boxed.h"
#include "aten/never_followed.h"
#include "following/turn.h"

namespace flagos {

template <class Op>
const c10::OperatorHandle& handle_of() {
  static const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  return handle;
}

// Whether an operator makes a tensor and computes nothing.
template <class Op>
constexpr bool kOnlyAllocates =
    std::is_same_v<Op, at::_ops::empty_memory_format> || std::is_same_v<Op, at::_ops::empty_strided>;

// One call of a typed kernel while the program wants graphs.
template <class Op, class Signature = typename Op::schema>
class FollowedCall;

template <class Op, class Result, class... Arguments>
class FollowedCall<Op, Result(Arguments...)> {
 public:
  explicit FollowedCall(Arguments... arguments) : stack_(box(arguments...)), turn_(operator_of(), stack_) {}

  // To be called when a kernel that makes such calls is registered.
  static void note() {
    following::Operators::instance().add(c10::toString(handle_of<Op>().operator_name()), &operator_of);
  }

  // Whether the call was followed, or has been served by `natively` on the stack to be followed later.
  template <class Natively>
  bool serve(const Natively& natively) {
    if (C10_LIKELY(turn_.followed())) {
      return true;
    }
    if (turn_.records()) {
      turn_.serve(stack_, natively);
      return true;
    }
    return false;
  }
  // The same with torch's own kernel.
  bool serve() {
    return serve([](torch::jit::Stack& stack) {
      static const Traits traits = traits_of(handle_of<Op>());
      serve_natively(handle_of<Op>(), native->keys, &stack, traits);
    });
  }

  Result result([[maybe_unused]] Arguments... arguments) {
    if constexpr (std::is_same_v<Result, at::Tensor&>) {
      const at::Tensor& found = stack_.back().toTensor();
      at::Tensor* written = nullptr;
      ((written = written != nullptr ? written : same(found, arguments)), ...);
      TORCH_INTERNAL_ASSERT(written != nullptr, Op::name, " returned none of its arguments");
      return *written;
    } else if constexpr (!std::is_void_v<Result>) {
      return c10::impl::PopResult<Result>::call(stack_);
    }
  }

 private:
  static torch::jit::Stack box(Arguments... arguments) {
    torch::jit::Stack stack;
    stack.reserve(sizeof...(Arguments));
    torch::jit::push(stack, arguments...);
    return stack;
  }
  static following::Operator& operator_of() {
    static following::Operator& found = *[&] {
      const Traits traits = traits_of(handle_of<Op>());
      auto* made = new following::Operator(
          handle_of<Op>(), traits.writes, traits.counts_versions, why_never_followed(handle_of<Op>()));
      made->only_allocates = kOnlyAllocates<Op>;
      return made;
    }();
    return found;
  }
  template <class T>
  static at::Tensor* same(const at::Tensor& /*found*/, T&& /*not written*/) {
    return nullptr;
  }
  static at::Tensor* same(const at::Tensor& found, at::Tensor& argument) {
    return argument.is_same(found) ? &argument : nullptr;
  }

  torch::jit::Stack stack_;
  following::Turn turn_;
};

} // namespace flagos
