// SPDX-License-Identifier: Apache-2.0
// Conditions on the arguments of a call, outside of which an implementation must not serve it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flagos {

// Some of the conditions in torch_fl/flaggems/envelope.py, which says what each means; a call is held against them
// without Python. They are about what tensors are, never about what is in them. Immutable.
class Conditions {
 public:
  // Names that are not known here, of a later version, hold for no call.
  Conditions(const c10::FunctionSchema& schema, const std::vector<std::string>& names);

  bool any() const {
    return required_ != 0;
  }

  // All that are known here.
  static const std::vector<std::string>& names();

  // Which do not hold for the last values of the stack, the arguments of a call; 0 when all do.
  uint32_t broken_by(const torch::jit::Stack& stack) const;

  // Why a call that broke these is declined.
  std::string reason(uint32_t broken) const;

 private:
  struct Argument {
    bool selects;  // an index or a mask, which holds no floating-point numbers
    bool is_dtype; // a number on the stack
  };
  std::vector<Argument> arguments_;
  std::vector<std::string> unknown_;
  uint32_t required_ = 0;
};

// The names of the conditions that hold for a call of the operator `op`. `tensors[i]` is the argument number
// `tensors_at[i]` or in the list that is, a complex number is in each of `complex_at`, and `dtype` is the value of
// the arguments that take one. Other arguments say nothing of conditions.
std::vector<std::string> conditions_held(
    const std::string& op,
    at::TensorList tensors,
    at::IntArrayRef tensors_at,
    at::IntArrayRef complex_at,
    std::optional<at::ScalarType> dtype);

} // namespace flagos
