// SPDX-License-Identifier: Apache-2.0
// `tensor.to(...)` under the cuda vendor, where flagos and CUDA tensors can share their memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace flagos {

// A CUDA tensor over the memory of a flagos tensor. Differentiable: its gradient arrives at `tensor`.
at::Tensor to_cuda_view(const at::Tensor& tensor);

// A flagos tensor over the memory of a CUDA tensor. Differentiable likewise.
at::Tensor to_flagos_view(const at::Tensor& tensor);

// The CUDA tensor to show to one of torch's checks for CUDA, in place of a flagos tensor; any other tensor itself.
at::Tensor shown_to_cuda(const at::Tensor& tensor);

} // namespace flagos
