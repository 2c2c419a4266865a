// SPDX-License-Identifier: Apache-2.0
// What the plan says about one operator, read at every dispatch.
#pragma once

#include <string>

#include "runtime/core.h"

namespace flagos {

// Logs the dispatch or raises the plan's reason; the rare cases of `enter_op`.
bool enter_op_slowly(FlagosOpSlot* slot, const char* name);

// Counts the call and lets the plan intervene. One relaxed add and one load when it has nothing to say. True when the
// plan wants the operator run on copies on the CPU, which it only asks of those registered as able to.
inline bool enter_op(FlagosOpSlot* slot, const char* name) {
  __atomic_fetch_add(&slot->calls, 1, __ATOMIC_RELAXED);
  const uint32_t route = __atomic_load_n(&slot->route, __ATOMIC_RELAXED);
  const uint32_t flags = __atomic_load_n(&slot->flags, __ATOMIC_RELAXED);
  return C10_UNLIKELY((route | flags) != 0) && enter_op_slowly(slot, name);
}

// Whether the plan wants every call of the operator told.
inline bool logs_dispatch(const FlagosOpSlot* slot) {
  return C10_UNLIKELY((__atomic_load_n(&slot->flags, __ATOMIC_RELAXED) & FLAGOS_FLAG_LOG) != 0);
}

// While a graph is captured, says which operator an error came from; to be called with the error in flight.
void name_while_capturing(c10::Error& error, const char* name);

// Set while `torch.flagos.graph` captures.
extern bool capturing;

// The slot of `aten::name`, interned for the life of the process.
FlagosOpSlot* op_slot(const std::string& qualified_name);

} // namespace flagos
