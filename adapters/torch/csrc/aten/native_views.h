// SPDX-License-Identifier: Apache-2.0
// The native tensors that a compiled graph takes for its flagos arguments, kept from call to call.
#pragma once

#include <torch/library.h>

namespace flagos {

// Defines the operators by which torch_fl.cuda.compiled_graph keeps them.
void register_native_views(torch::Library& library);

} // namespace flagos
