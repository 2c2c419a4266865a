// SPDX-License-Identifier: Apache-2.0
// Conditions on the arguments of a call. An implementation must not serve a call that breaks its conditions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flagos {

// The class of a size: 0 for less than 4, and one more for each factor of 4.
uint32_t size_class(int64_t size);

// The conditions of one implementation, checked without Python. torch_fl/flaggems/envelope.py says what each means.
// They depend on dtypes, sizes and strides of tensors, never on their contents. Immutable.
class Conditions {
 public:
  // A name that this version does not know is a condition that no call fulfils. One that begins with `sizes ` names,
  // for each argument with tensors, the classes of sizes in which the kernel was verified, as bits: `0:1f/3f/7` for the
  // first argument's elements, rows (elements of all dimensions but the last) and columns (of the last).
  Conditions(const c10::FunctionSchema& schema, const std::vector<std::string>& names);

  bool any() const {
    return required_ != 0;
  }

  // The names of all conditions that this version knows.
  static const std::vector<std::string>& names();

  // The conditions, as bits, that the call with these arguments at the end of the stack breaks; 0 for none.
  uint32_t broken_by(const torch::jit::Stack& stack) const;

  // The reason to give for declining a call that broke these.
  std::string reason(uint32_t broken) const;

 private:
  struct Argument {
    bool selects;  // an index or a mask, which is not floating-point
    bool is_dtype; // a dtype, which is an integer on the stack
  };
  struct Sizes {
    uint32_t elements = 0;
    uint32_t rows = 0;
    uint32_t columns = 0;
  };
  static bool parse_sizes(const std::string& text, std::vector<Sizes>& sizes);
  static bool verified_at(const c10::IValue& value, const Sizes& sizes);

  std::vector<Argument> arguments_;
  std::vector<Sizes> sizes_; // of each argument, or none at all
  std::vector<std::string> unknown_;
  uint32_t required_ = 0;
};

// The names of the conditions that hold for a call of the operator `op`. `tensors[i]` is the argument number
// `tensors_at[i]` or in the list that is, a complex number is in each of `complex_at`, and `dtype` is the value of
// the arguments that take one. Other arguments say nothing of conditions. Those of `more` that hold come last.
std::vector<std::string> conditions_held(
    const std::string& op,
    at::TensorList tensors,
    at::IntArrayRef tensors_at,
    at::IntArrayRef complex_at,
    std::optional<at::ScalarType> dtype,
    const std::vector<std::string>& more);

} // namespace flagos
