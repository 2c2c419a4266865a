// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace flagos {

// Sums a sparse COO tensor over the ranks of a group, in place, in the order of the ranks: every rank has the same
// bits. The tensor is coalesced afterwards. Waits for the other ranks.
//
// Raises ValueError for another reduction than a sum, and where the ranks' tensors differ in shape, type or number of
// sparse dimensions.
c10::intrusive_ptr<c10d::Work>
sum_sparse(c10d::Backend& group, at::Tensor& tensor, const c10d::AllreduceOptions& options);

// Lets torch.distributed send sparse tensors of the device to their group's backend, as torch does for those of
// its own devices.
void register_sparse_reduction();

} // namespace flagos
