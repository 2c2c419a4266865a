// SPDX-License-Identifier: Apache-2.0
// Operators as automatic graphs see them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <optional>

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
  // Does a call again on flagos tensors; where it is empty, torch's native kernel does, on native ones.
  std::function<void(torch::jit::Stack&)> repeats;
  std::optional<size_t>
      dropout; // the argument that is the share of what is dropped: at 0 the operator draws no numbers

  bool draws(c10::ArrayRef<c10::IValue> arguments) const {
    return dropout.has_value() && !(arguments[*dropout].isDouble() && arguments[*dropout].toDouble() == 0.0);
  }
};

} // namespace flagos::following
