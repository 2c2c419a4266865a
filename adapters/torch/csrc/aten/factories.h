// SPDX-License-Identifier: Apache-2.0
// Operators that need no twin: factories and views work on flagos tensors as they are.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace flagos {

// Appends the `aten::name.overload` it registered.
void register_factories_and_views(torch::Library& library, std::vector<std::string>& registered);

} // namespace flagos
