// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: the choices torch makes by device type, made for flagos.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// `library` implements PrivateUse1, `autograd` AutogradPrivateUse1. Appends what it registered.
void register_rnn(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

} // namespace flagos
