// SPDX-License-Identifier: Apache-2.0
// The indices of a call in the form that kernels of libraries take.
#pragma once

#include <ATen/core/stack.h>

namespace flagos {

// Replaces masks among indices by the places where they are true, which have as many elements as the result: a kernel's
// results are allocated before it runs. Moves indices of the host to the device. Leaves what torch refuses as it is.
void prepare_indices(torch::jit::Stack& stack, size_t first);

} // namespace flagos
