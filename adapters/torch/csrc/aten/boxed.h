// SPDX-License-Identifier: Apache-2.0
// The boxed twin: serves any operator natively from its schema alone.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/FunctionRef.h>

#include <string>

#include "aten/route.h"

namespace flagos {

// What the schema and torch's conventions say of an operator.
struct Traits {
  bool mutates;           // some argument is written
  uint64_t cpu_arguments; // bit i: argument i may be a CPU tensor beside flagos ones
  bool counts_versions;   // torch leaves the version counters of what it writes to the kernel
};

// Leads to torch's composite: nobody registers anything else under it.
constexpr c10::DispatchKeySet kComposite(c10::DispatchKey::AutogradLazy);

// The operator of a qualified name, such as `aten::add.Tensor`.
inline std::optional<c10::OperatorHandle> find_operator(const std::string& name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
}

Traits traits_of(const c10::OperatorHandle& op);

// Replaces the flagos arguments of a call by their native twins, has `run` do the work on the stack, below autograd,
// and shows what it leaves there under flagos again.
void serve(
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    const Traits& traits,
    c10::function_ref<void(torch::jit::Stack*)> run,
    bool shows_requires_grad = false);

// The same with the work done by the operator's own kernel under `native_keys`.
void serve_natively(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet native_keys,
    torch::jit::Stack* stack,
    const Traits& traits);

// Whether `key` has a kernel of its own for the operator, or torch one for every device.
inline bool has_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(key) || op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// Kernel of one operator under one dispatch key; `native_keys` is where it is redispatched.
class BoxedTwin final : public c10::OperatorKernel {
 public:
  BoxedTwin(const c10::OperatorHandle& op, c10::DispatchKeySet native_keys);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  std::string name_;
  FlagosOpSlot* slot_;
  c10::DispatchKeySet native_keys_;
  Traits traits_;
};

// For operators registered by others (custom operators with a CPU kernel): the backend fallback.
void boxed_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

} // namespace flagos
