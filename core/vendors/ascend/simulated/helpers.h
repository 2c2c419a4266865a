// SPDX-License-Identifier: Apache-2.0
// What the programs of operators call beside ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <string>
#include <vector>

namespace simulated_ascend {

// Thrown in a trial: what results' shapes depend on is not known.
struct Unknown {};

struct Helper {
  c10::IValue (*call)(std::vector<c10::IValue>& arguments);
  bool infers = true;            // whether the result's shape does not depend on values
  bool infers_from_masks = true; // nor if there are masks among the arguments
};

const Helper* helper_of(const std::string& name);

// An operator of ATen by its name and overload.
c10::IValue call(const char* name, std::vector<c10::IValue> arguments);
// A value as an argument of this type.
c10::IValue coerce(const c10::IValue& value, const c10::TypePtr& type);

at::ScalarType type_of(int dtype);
at::Tensor make_view(void* memory, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);
at::Tensor make_trial(at::IntArrayRef sizes, at::ScalarType dtype, bool ones);
void copy_into(const at::Tensor& out, const at::Tensor& value);
// Makes the calling thread settle how many threads ATen uses in it.
void single_thread();
std::string first_line(const char* text);

} // namespace simulated_ascend
