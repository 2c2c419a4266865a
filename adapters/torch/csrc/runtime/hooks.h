// SPDX-License-Identifier: Apache-2.0
// What torch asks of an accelerator that is not an operator.
#pragma once

namespace flagos {

// Raises if another plugin owns PrivateUse1.
void register_hooks();

} // namespace flagos
