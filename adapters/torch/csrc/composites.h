// SPDX-License-Identifier: Apache-2.0
// Recurrent layers under the cuda vendor: composites in which torch asks whether a tensor is on CUDA.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// Runs them on CUDA views of their arguments, so that they take cuDNN as they do for CUDA.
void register_composites(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

} // namespace flagos
