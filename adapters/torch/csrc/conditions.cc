// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>

namespace flagos {

namespace {

constexpr uint32_t kReal = 1U << 0;
constexpr uint32_t kNonempty = 1U << 1;
constexpr uint32_t kDimensioned = 1U << 2;
constexpr uint32_t kFloating = 1U << 3;
constexpr uint32_t kContiguous = 1U << 4;
constexpr uint32_t kUnknown = 1U << 5;

// By bit.
constexpr std::array<const char*, 5> kNames{"real", "nonempty", "dimensioned", "floating", "contiguous"};

// Arguments that pick elements, as schemas call them.
constexpr std::array<const char*, 4> kSelecting{"index", "indices", "mask", "condition"};

bool is_dtype(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

uint32_t broken_by_tensor(const at::Tensor& tensor, bool selects) {
  if (!tensor.defined()) {
    return 0;
  }
  const c10::ScalarType dtype = tensor.scalar_type();
  const uint32_t complex = c10::isComplexType(dtype) ? kReal : 0;
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return complex; // a number, as Python is handed it
  }
  return complex | (tensor.numel() == 0 ? kNonempty : 0) | (tensor.dim() == 0 ? kDimensioned : 0) |
      (c10::isFloatingType(dtype) || selects ? 0 : kFloating) |
      (tensor.layout() == c10::kStrided && tensor.is_contiguous() ? 0 : kContiguous);
}

uint32_t broken_by_value(const c10::IValue& value, bool selects) {
  if (value.isTensor()) {
    return broken_by_tensor(value.toTensor(), selects);
  }
  return value.isComplexDouble() ? kReal : 0;
}

} // namespace

Conditions::Conditions(const c10::FunctionSchema& schema, const std::vector<std::string>& names) {
  for (const c10::Argument& argument : schema.arguments()) {
    const bool selects = std::find(kSelecting.begin(), kSelecting.end(), argument.name()) != kSelecting.end();
    arguments_.push_back({selects, is_dtype(argument)});
  }
  for (const std::string& name : names) {
    const auto known = std::find(kNames.begin(), kNames.end(), name);
    if (known != kNames.end()) {
      required_ |= 1U << static_cast<uint32_t>(known - kNames.begin());
    } else {
      required_ |= kUnknown;
      unknown_.push_back(name);
    }
  }
  std::sort(unknown_.begin(), unknown_.end());
}

uint32_t Conditions::broken_by(const torch::jit::Stack& stack) const {
  const size_t first = stack.size() - arguments_.size();
  uint32_t broken = kUnknown;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    const Argument argument = arguments_[i];
    if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        broken |= broken_by_value(element, argument.selects);
      }
    } else if (value.isInt()) {
      const bool complex = argument.is_dtype && c10::isComplexType(static_cast<c10::ScalarType>(value.toInt()));
      broken |= complex ? kReal : 0;
    } else {
      broken |= broken_by_value(value, argument.selects);
    }
  }
  return broken & required_;
}

std::string Conditions::reason(uint32_t broken) const {
  std::string text = "it was verified within conditions, and not:";
  const char* separator = " ";
  const auto add = [&](const std::string& name) {
    text += separator + name;
    separator = ", ";
  };
  for (size_t i = 0; i < kNames.size(); ++i) {
    if ((broken >> i & 1U) != 0) {
      add(kNames[i]);
    }
  }
  if ((broken & kUnknown) != 0) {
    for (const std::string& name : unknown_) {
      add(name);
    }
  }
  return text;
}

} // namespace flagos
