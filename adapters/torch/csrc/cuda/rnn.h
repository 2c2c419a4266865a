// SPDX-License-Identifier: Apache-2.0
// Recurrent layers by cuDNN, under the cuda vendor. torch's composites ask whether cuDNN accepts the input and then
// call a function chosen by the type of the device; here is the one for flagos.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

void register_rnn_cudnn(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

} // namespace flagos
