// SPDX-License-Identifier: Apache-2.0
// Implementations written in Python for tensors of the native device, under flagos operators.
#pragma once

#include <torch/library.h>

namespace flagos {

// Adds what torch_fl/python_kernels is made of to the library of flagos.
void register_routed(torch::Library& library);

} // namespace flagos
