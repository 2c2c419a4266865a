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

// The places of the arguments that an operator writes.
std::vector<int> places_written(const c10::FunctionSchema& schema) {
  std::vector<int> written;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (is_written(schema.arguments()[i])) {
      written.push_back(static_cast<int>(i));
    }
  }
  return written;
}

// How many arguments come before those named `out`.
size_t count_before_out(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto is_out = [](const c10::Argument& argument) { return is_written(argument) && argument.is_out(); };
  return static_cast<size_t>(std::find_if(arguments.begin(), arguments.end(), is_out) - arguments.begin());
}

// Fills in the form of an in-place operator.
void describe_in_place(Form& form, const c10::FunctionSchema& schema, const std::vector<int>& written) {
  const std::string functional = schema.name().substr(0, schema.name().size() - 1);
  form.in_place = true;
  if (written.size() == 1) {
    form.functional = functional_of(functional, schema, schema.arguments().size());
  }
  if (written.size() == 1 && written[0] == 0 && schema.returns().size() == 1) {
    form.results = written;
    return;
  }
  form.written = written;
  for (const c10::Argument& result : schema.returns()) {
    form.results.push_back(argument_of(schema, result));
  }
}

// Fills in where the operator writes: the functional operator, the results, and what is written besides. Returns
// whether it can be served.
bool describe_results(Form& form, const c10::OperatorHandle& op, size_t count) {
  const c10::FunctionSchema& schema = op.schema();
  const std::vector<int> written = places_written(schema);
  bool given_alone = false;
  if (!written.empty() && count < schema.arguments().size()) {
    form.functional = functional_of(schema.name(), schema, count);
    form.results = written;
    // Such as `randperm`, whose functional form has other arguments. The kernel knows what fits.
    given_alone = !form.functional.has_value() && !has_tensors(schema, count);
  } else if (!written.empty() && schema.name().back() == '_') {
    describe_in_place(form, schema, written);
    given_alone = !form.functional.has_value();
  } else if (written.empty() || !returns_what_it_writes(schema)) {
    // What is written without being returned, such as running statistics, the kernel gets as arguments.
    form.functional = op;
    form.results.assign(schema.returns().size(), -1);
  }
  const bool returns_lists_it_writes = form.returns_list && !form.written.empty();
  return (form.functional.has_value() || given_alone) && form.results.size() == schema.returns().size() &&
      !returns_lists_it_writes && (!schema.returns().empty() || !form.written.empty());
}

// Fills in the form of an operator, without its kernel.
Refusal describe(Form& form, const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (!returns_tensors(schema)) {
    return Refusal("kernels of libraries return tensors only");
  }
  const size_t count = count_before_out(schema);
  form.name = c10::toString(op.operator_name());
  form.returns_list = schema.returns().size() == 1 && is_list_of_tensors(schema.returns()[0].type());
  if (!describe_results(form, op, count)) {
    return Refusal("its form is none that kernels of libraries serve");
  }
  for (size_t i = 0; i < count; ++i) {
    form.arguments.push_back(kind_of(schema.arguments()[i]));
  }
  form.random = op.hasTag(at::Tag::nondeterministic_seeded) && !particulars_of(schema.name()).has(kDrawsNothing);
  form.pointwise =
      op.hasTag(at::Tag::pointwise) || (form.functional.has_value() && form.functional->hasTag(at::Tag::pointwise));
  form.has_tensors = has_tensors(schema, schema.arguments().size());
  if (form.functional.has_value()) {
    form.particulars = &particulars_of(c10::toString(form.functional->operator_name()));
  }
  return {};
}

// The library's kernel for an operator; or its reason why it has none.
Refusal find(const FlagosKernels* kernels, const c10::OperatorHandle& op, const FlagosKernel** kernel) {
  const std::string name = c10::toString(op.operator_name());
  if (kernels->find(name.c_str(), kernel) == FLAGOS_VENDOR_OK && *kernel != nullptr) {
    return {};
  }
  *kernel = nullptr;
  const char* text = kernels->last_error();
  return Refusal(text != nullptr ? text : "the vendor's library has no kernel for " + name);
}

} // namespace

FoundKernel find_kernel(const c10::OperatorHandle& op, const FlagosKernels* kernels) {
  FoundKernel found;
  if (kernels == nullptr) {
    found.refusal = Refusal("the vendor's library has no kernels");
    return found;
  }
  if ((found.refusal = describe(found.form, op))) {
    return found;
  }
  Form& form = found.form;
  if (form.functional.has_value()) {
    found.refusal = find(kernels, *form.functional, &found.kernel);
    if (found.kernel != nullptr) {
      return found;
    }
  }
  // Operators such as `fill_` are in-place in the first place.
  if (form.in_place || !form.functional.has_value()) {
    found.refusal = find(kernels, op, &found.kernel);
    form.functional.reset();
    form.particulars = nullptr;
  }
  return found;
}

} // namespace flagos
