// SPDX-License-Identifier: Apache-2.0
// Device time in torch.autograd.profiler(use_device="flagos").
#pragma once

namespace flagos {

void register_profiler();

} // namespace flagos
