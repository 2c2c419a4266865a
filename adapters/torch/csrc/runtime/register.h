// SPDX-License-Identifier: Apache-2.0
// The registrations of the runtime room.
#pragma once

namespace flagos {

// Answers torch's questions about an accelerator. Throws if another plugin owns PrivateUse1.
void register_hooks();

// The guard (current device, streams, events) of devices that the core owns.
void register_core_guard();

// Automatic mixed precision with torch's own lists of operators.
void register_autocast();

// Device time in torch.autograd.profiler(use_device="flagos").
void register_profiler();

} // namespace flagos
