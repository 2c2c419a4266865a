// SPDX-License-Identifier: Apache-2.0
// Histograms of integers, which accelerators count and the CPU refuses. Under the host vendor alone.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

void register_histc(torch::Library& library, std::vector<std::string>& registered);

} // namespace flagos
