// SPDX-License-Identifier: Apache-2.0
// Graphs of work that streams of the core captured.
#pragma once

#include <torch/library.h>

#include "runtime/core.h"

namespace flagos {

// Defines the operators by which torch.flagos makes graphs. A graph is the address of a `FlagosGraph`.
void register_graphs(torch::Library& library);

} // namespace flagos
