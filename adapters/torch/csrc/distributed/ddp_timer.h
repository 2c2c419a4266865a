// SPDX-License-Identifier: Apache-2.0
// Times for the statistics of DistributedDataParallel.
#pragma once

namespace flagos {

// Registers the timer; to be called once.
void register_ddp_timer();

} // namespace flagos
