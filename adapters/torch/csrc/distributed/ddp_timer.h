// SPDX-License-Identifier: Apache-2.0
// Times for the statistics of DistributedDataParallel.
#pragma once

namespace flagos {

// Once.
void register_ddp_timer();

} // namespace flagos
