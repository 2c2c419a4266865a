// SPDX-License-Identifier: Apache-2.0
// What the cuda room registers. `library` implements PrivateUse1, `autograd` AutogradPrivateUse1. Each function appends
// the `aten::name.overload` it registered.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// torch's autograd engine knows one accelerator per process. Once a PrivateUse1 device is registered it takes that for
// the accelerator everywhere, and every backward pass over CUDA tensors stops at an internal assertion
// (github.com/pytorch/pytorch/issues/161129). Under the cuda vendor both exist, so the engine is told which of them the
// graph at hand is made of: its two questions about accelerators are redirected. Throws when this torch does not ask
// them where it should.
void teach_engine();

// Defines `flagos::enter_backward` and `flagos::exit_backward`, between which a graph is run.
void register_engine();

// Batch normalization and grid sampling take what they would take for CUDA.
void register_cudnn_choices(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);
void register_rnn_cudnn(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);
void register_fft_half(torch::Library& library, torch::Library& autograd);
void register_to(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered);

} // namespace flagos
