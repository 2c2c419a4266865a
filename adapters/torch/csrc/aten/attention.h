// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention: which of torch's implementations flagos takes.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// `library` implements PrivateUse1, `autograd` AutogradPrivateUse1. Appends what it registered.
void register_attention(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

} // namespace flagos
