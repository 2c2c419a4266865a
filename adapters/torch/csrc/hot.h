// SPDX-License-Identifier: Apache-2.0
// Registration of the typed kernels, one function per translation unit.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// Each appends the `aten::name.overload` it registered.
void register_hot_pointwise(torch::Library& library, std::vector<std::string>& registered);
void register_hot_reductions(torch::Library& library, std::vector<std::string>& registered);
void register_hot_linear(torch::Library& library, std::vector<std::string>& registered);
void register_hot_gradients(torch::Library& library, std::vector<std::string>& registered);

} // namespace flagos

// FLAGOS_HOT(add_Tensor, "add.Tensor") inside such a function.
#define FLAGOS_HOT(op, overload)                                           \
  ::flagos::Typed<at::_ops::op>::name = "aten::" overload;                 \
  ::flagos::Typed<at::_ops::op>::slot = op_slot("aten::" overload);        \
  library.impl(overload, TORCH_FN((::flagos::Typed<at::_ops::op>::call))); \
  registered.emplace_back("aten::" overload)
