// SPDX-License-Identifier: Apache-2.0
// The route that the plan gives an operator, read at every dispatch.
#pragma once

#include <string>

#include "runtime/core.h"

namespace flagos {

// Throws the plan's reason why nothing serves the operator.
[[noreturn]] void raise_blocked(const char* name);

// The rare cases of `enter_op`: logs the dispatch, throws the plan's reason, or sends the call to the CPU.
bool enter_op_slowly(FlagosOpSlot* slot, const char* name);

// Counts a call of the operator.
inline void count_call(FlagosOpSlot* slot) {
  __atomic_fetch_add(&slot->calls, 1, __ATOMIC_RELAXED);
}

// The operator's route in the plan, for callers that follow the rest of the plan, too.
inline uint32_t route_of(const FlagosOpSlot* slot) {
  return __atomic_load_n(&slot->route, __ATOMIC_ACQUIRE);
}

// Counts the call and follows the plan; on the native route it costs one relaxed add and two loads. Returns true if the
// plan routes the operator to the CPU, which it does only for operators that were registered as able to run there.
inline bool enter_op(FlagosOpSlot* slot, const char* name) {
  count_call(slot);
  const uint32_t route = __atomic_load_n(&slot->route, __ATOMIC_RELAXED);
  const uint32_t flags = __atomic_load_n(&slot->flags, __ATOMIC_RELAXED);
  return C10_UNLIKELY((route | flags) != 0) && enter_op_slowly(slot, name);
}

// Logs a call of the operator by `backend`, if the plan wants its calls logged.
inline void log_dispatch(const FlagosOpSlot* slot, const char* name, const char* backend) {
  if (C10_UNLIKELY((__atomic_load_n(&slot->flags, __ATOMIC_RELAXED) & FLAGOS_FLAG_LOG) != 0)) {
    core->op_log_dispatch(name, backend);
  }
}

// While a graph is captured, adds the operator's name to an error in flight.
void name_while_capturing(c10::Error& error, const char* name);

// Tells that a graph is captured from now on, or no longer.
void set_capturing(bool now);

// The slot of `aten::name`, interned for the life of the process.
FlagosOpSlot* op_slot(const std::string& qualified_name);

} // namespace flagos
