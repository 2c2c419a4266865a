// SPDX-License-Identifier: Apache-2.0
// torch's autograd engine knows one accelerator per process. Once a PrivateUse1 device is registered it takes that for
// the accelerator everywhere, and every backward pass over CUDA tensors stops at an internal assertion
// (github.com/pytorch/pytorch/issues/161129). Under the cuda vendor both exist, so the engine has to be told which of
// them the graph at hand is made of.
#pragma once

namespace flagos {

// Redirects the engine's two questions about accelerators. Throws when this torch does not ask them where it should.
void teach_engine();

// Defines `flagos::enter_backward` and `flagos::exit_backward`, between which a graph is run.
void register_engine();

} // namespace flagos
