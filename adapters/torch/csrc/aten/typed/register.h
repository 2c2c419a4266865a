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

// Leaves out what the native device cannot serve.
template <class Op>
void register_typed(torch::Library& library, std::vector<std::string>& registered, const char* overload) {
  if (!has_kernel(c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name), native.dense)) {
    return;
  }
  static const std::string name = std::string("aten::") + overload;
  Typed<Op>::name = name.c_str();
  Typed<Op>::slot = op_slot(name);
  library.impl(overload, TORCH_FN((Typed<Op>::call)));
  registered.push_back(name);
}

} // namespace flagos

// FLAGOS_TYPED(add_Tensor, "add.Tensor") inside such a function.
#define FLAGOS_TYPED(op, overload) register_typed<at::_ops::op>(library, registered, overload)
