// SPDX-License-Identifier: Apache-2.0
// Copies between tensors, of which one at least is on flagos.
#pragma once

#include <ATen/core/Tensor.h>

namespace flagos {

// Whether one memcpy copies the tensor: both sides have the same dtype, sizes, strides without holes, and lazy bits.
bool is_plain_copy(const at::Tensor& to, const at::Tensor& from);

// Queues the copy on the current stream if one side is pinned host memory; returns false if it cannot be queued.
bool copy_pinned(at::Tensor& to, const at::Tensor& from);

// Copies with torch's own kernel, on the aliases of flagos tensors.
void copy_natively(at::Tensor& to, const at::Tensor& from, bool non_blocking);

} // namespace flagos
