// SPDX-License-Identifier: Apache-2.0
// Normalizations whose kernels torch chooses by asking whether a tensor is on CUDA, under the cuda vendor.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// Takes what CUDA would take: cuDNN's batch normalization.
void register_normalization(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

} // namespace flagos
