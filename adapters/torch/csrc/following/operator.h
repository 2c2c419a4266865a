// SPDX-License-Identifier: Apache-2.0
// Operators as automatic graphs see them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>

namespace flagos::following {

struct Operator {
  // `written`: bit i, argument i is written; `counts`: the kernel raises the versions of what it writes.
  Operator(const c10::OperatorHandle& op, uint64_t written, bool counts, const char* why_native);

  c10::OperatorHandle op;
  uint64_t id;
  size_t num_arguments;
  size_t num_results;
  uint64_t written;
  bool counts;
  bool only_allocates = false; // there is no work to repeat
  const char* why_native;      // why no call can be followed; null if some can
};

} // namespace flagos::following
