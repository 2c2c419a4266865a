// SPDX-License-Identifier: Apache-2.0
// `tensor.to(...)` under the cuda vendor, where flagos and CUDA tensors can share their memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// A tensor on CUDA over the memory of a dense flagos tensor, with its version counter; autograd does not know of it.
at::Tensor share_with_cuda(const at::Tensor& self);

// The other way.
at::Tensor share_with_flagos(const at::Tensor& self);

// A tensor on CUDA over the memory of a flagos tensor, differentiable: its gradient arrives at `tensor`.
at::Tensor to_cuda_view(const at::Tensor& tensor);

// What a check of torch's that asks for CUDA is to look at, in place of a flagos tensor; others are passed through.
at::Tensor shown_to_cuda(const at::Tensor& tensor);

// A tensor on flagos over the memory of a CUDA tensor, differentiable likewise.
at::Tensor to_flagos_view(const at::Tensor& tensor);

} // namespace flagos
