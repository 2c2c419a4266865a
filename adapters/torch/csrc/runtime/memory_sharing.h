// SPDX-License-Identifier: Apache-2.0
// Device memory of one process used in another one.
#pragma once

#include <torch/library.h>

#include "runtime/core.h"

namespace flagos {

// Defines the operators by which torch_fl sends storages whose memory is the core's.
void register_memory_sharing(torch::Library& library);

} // namespace flagos
