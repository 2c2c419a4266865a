// SPDX-License-Identifier: Apache-2.0
// Dropout on the host vendor.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// torch asks for a fused kernel on devices of others, which rounds otherwise than what the CPU calls.
void register_dropout(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

} // namespace flagos
