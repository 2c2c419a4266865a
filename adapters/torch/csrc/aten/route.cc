// SPDX-License-Identifier: Apache-2.0
#include "aten/route.h"

#include "runtime/native.h"

namespace flagos {

void raise_blocked(const char* name) {
  check(core->init()); // an error in the configuration is the better message
  char* text = nullptr;
  check(core->op_blocked_reason(name, &text));
  const std::string reason = text != nullptr ? text : "no usable implementation";
  core->string_free(text);
  raise(FLAGOS_UNSUPPORTED, std::string("flagos: ") + name + " is not routed: " + reason);
}

bool enter_op_slowly(FlagosOpSlot* slot, const char* name) {
  const uint32_t route = route_of(slot);
  if (route == FLAGOS_ROUTE_BLOCKED) {
    raise_blocked(name);
  }
  const bool on_cpu = route == FLAGOS_ROUTE_CPU_FALLBACK;
  if (on_cpu) {
    check(core->op_record_fallback(name, "the plan routes it to the CPU"));
  }
  log_dispatch(slot, name, on_cpu ? "cpu" : native->name_in_logs());
  return on_cpu;
}

namespace {

bool capturing = false; // while a graph is captured

} // namespace

void set_capturing(bool now) {
  __atomic_store_n(&capturing, now, __ATOMIC_RELAXED);
}

void name_while_capturing(c10::Error& error, const char* name) {
  if (__atomic_load_n(&capturing, __ATOMIC_RELAXED)) {
    error.add_context(std::string("flagos: ") + name + " failed while a graph was being captured");
  }
}

FlagosOpSlot* op_slot(const std::string& qualified_name) {
  FlagosOpSlot* slot = core->op_slot(qualified_name.c_str());
  TORCH_CHECK(slot != nullptr, "flagos: cannot register operator ", qualified_name, ": ", core->last_error());
  return slot;
}

} // namespace flagos
