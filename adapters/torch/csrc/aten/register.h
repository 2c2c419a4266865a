// SPDX-License-Identifier: Apache-2.0
// What the aten room registers. `library` implements PrivateUse1, `autograd` AutogradPrivateUse1. Each function appends
// the `aten::name.overload` it registered.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

void register_factories_and_views(torch::Library& library, std::vector<std::string>& registered);
void register_copies(torch::Library& library, std::vector<std::string>& registered);
void register_attention(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

// On the host vendor: composites in which torch asks for the CPU or for CUDA by name, with the CPU's arithmetic.
void register_dropout(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);
void register_rnn(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);
// On the host vendor: what torch has kernels of for accelerators alone.
void register_histc(torch::Library& library, std::vector<std::string>& registered);
void register_sync_batch_norm(torch::Library& library, std::vector<std::string>& registered);

void register_typed_pointwise(torch::Library& library, std::vector<std::string>& registered);
void register_typed_reductions(torch::Library& library, std::vector<std::string>& registered);
void register_typed_linear(torch::Library& library, std::vector<std::string>& registered);
void register_typed_gradients(torch::Library& library, std::vector<std::string>& registered);

} // namespace flagos
