// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/form.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <unordered_map>

#include "aten/boxed.h"

namespace flagos {

namespace {

using Overloads = std::unordered_map<std::string, std::vector<c10::OperatorName>>;

// The overloads of each operator that torch had when the device was registered.
const std::vector<c10::OperatorName>& overloads_of(const std::string& name) {
  static const Overloads overloads = [] {
    Overloads found;
    for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
      found[op.name].push_back(op);
    }
    return found;
  }();
  static const std::vector<c10::OperatorName> none;
  const auto found = overloads.find(name);
  return found == overloads.end() ? none : found->second;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Whether the first `count` arguments of `a` are all that `b` has, but for what they write.
bool same_arguments(const c10::FunctionSchema& a, size_t count, const c10::FunctionSchema& b) {
  if (b.arguments().size() != count) {
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    if (a.arguments()[i].name() != b.arguments()[i].name() || is_written(b.arguments()[i]) ||
        *a.arguments()[i].type() != *b.arguments()[i].type()) {
      return false;
    }
  }
  return true;
}

std::optional<c10::OperatorHandle>
functional_of(const std::string& base, const c10::FunctionSchema& schema, size_t count) {
  for (const c10::OperatorName& name : overloads_of(base)) {
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op.has_value() && same_arguments(schema, count, op->schema())) {
      return op;
    }
  }
  return std::nullopt;
}

bool is_list_of_tensors(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::ListType::ofTensors());
}

// Whether all results are tensors, or the only one is a list of tensors.
bool returns_tensors(const c10::FunctionSchema& schema) {
  if (schema.returns().size() == 1 && is_list_of_tensors(schema.returns()[0].type())) {
    return true;
  }
  for (const auto& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) {
      return false;
    }
  }
  return true;
}

bool returns_what_it_writes(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr;
  });
}

// The argument that the operator returns as this result.
int argument_of(const c10::FunctionSchema& schema, const c10::Argument& result) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(arguments[i]) && result.alias_info() != nullptr &&
        arguments[i].alias_info()->beforeSets() == result.alias_info()->beforeSets()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

ArgumentKind kind_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  switch (type->kind()) {
    case c10::TypeKind::NumberType:
      return ArgumentKind::kNumber;
    case c10::TypeKind::ScalarTypeType:
      return ArgumentKind::kDtype;
    case c10::TypeKind::GeneratorType:
    case c10::TypeKind::DeviceObjType:
      return ArgumentKind::kNothing;
    default:
      return ArgumentKind::kPlain;
  }
}

// Whether a tensor is among the first arguments.
bool has_tensors(const c10::FunctionSchema& schema, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.type()->isSubtypeOf(*c10::TensorType::get()) ||
        argument.type()->isSubtypeOf(*c10::ListType::ofTensors())) {
      return true;
    }
  }
  return false;
}

// The form of an operator, without its kernel.
std::optional<Form> form_of(const c10::OperatorHandle& op, std::string& why_not) {
  const c10::FunctionSchema& schema = op.schema();
  if (!returns_tensors(schema)) {
    why_not = "kernels of libraries return tensors only";
    return std::nullopt;
  }
  size_t count = schema.arguments().size();
  std::vector<int> written;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (is_written(schema.arguments()[i])) {
      written.push_back(static_cast<int>(i));
      if (schema.arguments()[i].is_out()) {
        count = std::min(count, i);
      }
    }
  }
  bool out_alone = false;
  Form form;
  form.name = c10::toString(op.operator_name());
  const std::string& base = schema.name();
  if (written.empty()) {
    form.functional = op;
    form.results.assign(schema.returns().size(), -1);
  } else if (count < schema.arguments().size()) {
    form.functional = functional_of(base, schema, count);
    form.results = written;
    // Such as `randperm`, whose functional form has other arguments. The kernel knows what fits.
    out_alone = !form.functional.has_value() && !has_tensors(schema, count);
  } else if (base.back() == '_' && written.size() == 1 && written[0] == 0 && schema.returns().size() == 1) {
    form.functional = functional_of(base.substr(0, base.size() - 1), schema, count);
    form.in_place = true;
    form.results = written;
  } else if (base.back() == '_') {
    if (written.size() == 1) {
      form.functional = functional_of(base.substr(0, base.size() - 1), schema, count);
    }
    form.in_place = true;
    form.written = written;
    for (const c10::Argument& result : schema.returns()) {
      form.results.push_back(argument_of(schema, result));
    }
  } else if (!returns_what_it_writes(schema)) {
    // Such as running statistics, which the kernel gets as arguments.
    form.functional = op;
    form.results.assign(schema.returns().size(), -1);
  }
  form.returns_list = schema.returns().size() == 1 && is_list_of_tensors(schema.returns()[0].type());
  const bool given_alone = out_alone || (form.in_place && !form.functional.has_value());
  const bool returns_lists_it_writes = form.returns_list && !form.written.empty();
  if ((!form.functional.has_value() && !given_alone) || form.results.size() != schema.returns().size() ||
      returns_lists_it_writes || (schema.returns().empty() && form.written.empty())) {
    why_not = "its form is none that kernels of libraries serve";
    return std::nullopt;
  }
  for (size_t i = 0; i < count; ++i) {
    form.arguments.push_back(kind_of(schema.arguments()[i]));
  }
  form.random = op.hasTag(at::Tag::nondeterministic_seeded) && !particulars_of(base).has(kDrawsNothing);
  form.pointwise =
      op.hasTag(at::Tag::pointwise) || (form.functional.has_value() && form.functional->hasTag(at::Tag::pointwise));
  form.has_tensors = has_tensors(schema, schema.arguments().size());
  if (form.functional.has_value()) {
    form.particulars = &particulars_of(c10::toString(form.functional->operator_name()));
  }
  return form;
}

bool find(const FlagosKernels* kernels, const std::string& name, const FlagosKernel** kernel, std::string& why_not) {
  if (kernels->find(name.c_str(), kernel) == FLAGOS_VENDOR_OK && *kernel != nullptr) {
    return true;
  }
  const char* text = kernels->last_error();
  why_not = text != nullptr ? text : "the vendor's library has no kernel for " + name;
  return false;
}

} // namespace

std::optional<Form> find_kernel(
    const c10::OperatorHandle& op,
    const FlagosKernels* kernels,
    const FlagosKernel** kernel,
    std::string& why_not) {
  if (kernels == nullptr) {
    why_not = "the vendor's library has no kernels";
    return std::nullopt;
  }
  auto form = form_of(op, why_not);
  if (!form.has_value()) {
    return std::nullopt;
  }
  if (form->functional.has_value() &&
      find(kernels, c10::toString(form->functional->operator_name()), kernel, why_not)) {
    return form;
  }
  // Operators such as `fill_` are in-place in the first place.
  const bool writes = form->in_place || !form->functional.has_value();
  if (writes && find(kernels, c10::toString(op.operator_name()), kernel, why_not)) {
    form->functional.reset();
    form->particulars = nullptr;
    return form;
  }
  return std::nullopt;
}

} // namespace flagos
