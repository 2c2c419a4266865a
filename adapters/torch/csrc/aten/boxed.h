// SPDX-License-Identifier: Apache-2.0
// The boxed kernel: serves any operator natively, knowing only its schema.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/FunctionRef.h>

#include <memory>
#include <optional>
#include <string>

#include "aten/route.h"
#include "aten/traits.h"
#include "following/turn.h"

namespace flagos {

// Redispatching to this key runs torch's composite, since nobody registers kernels under it.
constexpr c10::DispatchKeySet kComposite(c10::DispatchKey::AutogradLazy);

// torch's kernel for the CPU of an operator on lists calls another operator for each tensor, wherever that is.
constexpr c10::DispatchKeySet kTensorByTensor(c10::DispatchKey::CPU);

// Compares the devices of tensors with that of the first.
class FirstDevice {
 public:
  bool differs(const at::Tensor& tensor) {
    if (C10_UNLIKELY(!tensor.defined())) {
      return false;
    }
    if (C10_UNLIKELY(!device_.has_value())) {
      device_ = tensor.device();
    }
    return *device_ != tensor.device();
  }

 private:
  std::optional<c10::Device> device_;
};

// The operator of a qualified name, such as `aten::add.Tensor`.
inline std::optional<c10::OperatorHandle> find_operator(const std::string& name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
}

// Throws torch's own error about a write to an inference tensor outside inference mode.
void check_writable(const c10::TensorImpl* tensor);

// Replaces the flagos arguments on the stack by their aliases, calls `run` on the stack, below autograd, and turns the
// native results that it leaves there into flagos tensors. With `shows_requires_grad` aliases tell whether their
// arguments require a gradient.
void serve(
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    const Traits& traits,
    c10::function_ref<void(torch::jit::Stack*)> run,
    bool shows_requires_grad = false);

// The same with torch's own kernel under `native_keys`.
void serve_natively(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet native_keys,
    torch::jit::Stack* stack,
    const Traits& traits);

// Whether `key` has a kernel of its own for the operator, or torch has one for every device.
inline bool has_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(key) || op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// The boxed kernel of one operator under one dispatch key. It redispatches to `native_keys`.
class BoxedKernel final : public c10::OperatorKernel {
 public:
  BoxedKernel(const c10::OperatorHandle& op, c10::DispatchKeySet native_keys);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  std::string name_;
  FlagosOpSlot* slot_;
  c10::DispatchKeySet native_keys_;
  Traits traits_;
  bool made_by_shape_;
  bool takes_mixed_lists_;
  std::unique_ptr<following::Operator> followed_; // of dense tensors
};

// The fallback for operators that others register, such as custom operators with a CPU kernel.
void boxed_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

} // namespace flagos
