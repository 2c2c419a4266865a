// SPDX-License-Identifier: Apache-2.0
// Memory that other processes use by a key.
#pragma once

#include "memory.h"

namespace simulated_ascend {

// Under the lock: imports of a block that have not been closed, and its end.
uint32_t ipc_imports(const Block& block);
void ipc_forget(const Block& block);

} // namespace simulated_ascend
