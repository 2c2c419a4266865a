// SPDX-License-Identifier: Apache-2.0
// Fourier transforms in half precision, under the cuda vendor.
#pragma once

#include <torch/library.h>

namespace flagos {

void register_fft_half(torch::Library& library, torch::Library& autograd);

} // namespace flagos
