// SPDX-License-Identifier: Apache-2.0
// Graphs of work that streams of the core captured.
#pragma once

#include <torch/library.h>

#include "runtime/core.h"

namespace flagos {

// Begins to capture the current stream of the current device; `mode` is one of FLAGOS_CAPTURE_*.
void begin_capture(FlagosGraph* graph, uint64_t memory, int32_t mode);

// Queues the captured work on the current stream of the graph's device.
void replay_graph(FlagosGraph* graph);

// The number of the graph's memory, for graphs that share it.
uint64_t memory_of_graph(FlagosGraph* graph);

// Defines the operators by which torch.flagos makes graphs. A graph is the address of a `FlagosGraph`.
void register_graphs(torch::Library& library);

} // namespace flagos
