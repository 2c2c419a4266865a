// SPDX-License-Identifier: Apache-2.0
// torch.accelerator.Graph on flagos, which torch has since 2.12.
#pragma once

namespace flagos {

// Tells torch how graphs are captured. Once in a process.
void register_accelerator_graphs();

} // namespace flagos
