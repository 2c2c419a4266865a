// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/library.h>

namespace flagos::following {

// Defines the operators by which Python asks for graphs and for the counts.
void register_following(torch::Library& library);

} // namespace flagos::following
