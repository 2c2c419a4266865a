// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// The parts of torch.nn.SyncBatchNorm, which torch has kernels of for accelerators alone, on the host vendor.
void register_sync_batch_norm(torch::Library& library, std::vector<std::string>& registered);

} // namespace flagos
