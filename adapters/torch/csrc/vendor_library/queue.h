// SPDX-License-Identifier: Apache-2.0
// Calls that a second thread hands to the vendor's library: `FlagosKernelCall::post`.
#pragma once

#include <torch/library.h>

#include "runtime/pending.h"

namespace flagos {

// Whether the program wants it.
extern bool queue_wanted;

inline bool is_queue_wanted() {
  return __atomic_load_n(&queue_wanted, __ATOMIC_RELAXED);
}

inline bool may_calls_be_queued() {
  return C10_UNLIKELY(__atomic_load_n(&calls_queued, __ATOMIC_ACQUIRE));
}

void register_queue(torch::Library& library);

} // namespace flagos
