// SPDX-License-Identifier: Apache-2.0
// What the runtime room registers.
#pragma once

namespace flagos {

// What torch asks of an accelerator that is not an operator. Raises if another plugin owns PrivateUse1.
void register_hooks();

// Automatic mixed precision: torch's own operator lists, for flagos.
void register_autocast();

// Device time in torch.autograd.profiler(use_device="flagos").
void register_profiler();

} // namespace flagos
