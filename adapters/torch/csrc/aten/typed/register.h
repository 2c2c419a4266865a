// SPDX-License-Identifier: Apache-2.0
// How a typed kernel is registered.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "aten/boxed.h"
#include "aten/register.h"
#include "aten/typed/typed.h"

namespace flagos {

// Registers `kernel` for an operator that it may also hand to `Typed<Op>::call`. `name` has its namespace, and lives
// on.
template <class Op, class Kernel>
void register_kernel(torch::Library& library, std::vector<std::string>& registered, const char* name, Kernel kernel) {
  Typed<Op>::name = name;
  Typed<Op>::slot = op_slot(name);
  library.impl(name, torch::CppFunction(kernel));
  registered.emplace_back(name);
}

// Leaves out what the native device cannot serve.
template <class Op>
void register_typed(torch::Library& library, std::vector<std::string>& registered, const char* overload) {
  if (!has_kernel(c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name), native.dense)) {
    return;
  }
  static const std::string name = std::string("aten::") + overload;
  register_kernel<Op>(library, registered, name.c_str(), TORCH_FN((Typed<Op>::call)));
}

} // namespace flagos

// FLAGOS_TYPED(add_Tensor, "add.Tensor") inside such a function.
#define FLAGOS_TYPED(op, overload) register_typed<at::_ops::op>(library, registered, overload)
