// SPDX-License-Identifier: Apache-2.0
// Composites that take cuDNN only after asking whether a tensor is on CUDA, under the cuda vendor.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// Batch normalization and grid sampling take what they would take for CUDA.
void register_cudnn_choices(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

} // namespace flagos
