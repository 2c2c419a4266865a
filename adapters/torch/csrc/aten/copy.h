// SPDX-License-Identifier: Apache-2.0
// Copies between flagos devices, the host and pinned memory; `record_stream`.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// Appends the `aten::name.overload` it registered.
void register_copies(torch::Library& library, std::vector<std::string>& registered);

} // namespace flagos
