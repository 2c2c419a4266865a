// SPDX-License-Identifier: Apache-2.0
// Implementations of operators written in Python, which work on tensors of the native device.
#pragma once

#include <torch/library.h>

namespace flagos {

// Defines the operators of `torch.ops.flagos` that torch_fl/python_kernels uses.
void register_routed(torch::Library& library);

} // namespace flagos
