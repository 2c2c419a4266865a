// SPDX-License-Identifier: Apache-2.0
// Composite operators in which torch asks whether a tensor is on CUDA, under the cuda vendor.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// Runs them on CUDA views of their arguments, so that they decide as they do for CUDA.
void register_composites(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

} // namespace flagos
