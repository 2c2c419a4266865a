// SPDX-License-Identifier: Apache-2.0
#include "helpers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <map>

#include "attention.h"

namespace simulated_ascend {

using at::Tensor;
using c10::IValue;
using Values = std::vector<IValue>;

at::ScalarType type_of(int dtype) {
  switch (dtype) {
    case 0:
      return at::kFloat;
    case 1:
      return at::kHalf;
    case 2:
      return at::kChar;
    case 3:
      return at::kInt;
    case 4:
      return at::kByte;
    case 6:
      return at::kShort;
    case 7:
      return at::kUInt16;
    case 8:
      return at::kUInt32;
    case 9:
      return at::kLong;
    case 10:
      return at::kUInt64;
    case 11:
      return at::kDouble;
    case 12:
      return at::kBool;
    case 16:
      return at::kComplexFloat;
    case 17:
      return at::kComplexDouble;
    case 27:
      return at::kBFloat16;
    case 33:
      return at::kComplexHalf;
    default:
      TORCH_CHECK(false, "an unknown dtype: ", dtype);
  }
}

Tensor make_view(void* memory, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::from_blob(memory, sizes, strides, at::TensorOptions(dtype));
}

Tensor make_trial(at::IntArrayRef sizes, at::ScalarType dtype, bool ones) {
  Tensor made = at::empty(sizes, at::TensorOptions(dtype));
  if (!at::isFloatingType(dtype) && !at::isComplexType(dtype)) {
    call("fill_.Scalar", {made, at::Scalar(ones && dtype != at::kBool ? 1 : 0)});
    return made;
  }
  // Between 0.1 and 0.9, all different: probabilities, regular matrices.
  Tensor values = at::empty({made.numel()}, at::TensorOptions(at::kFloat));
  auto* each = values.data_ptr<float>();
  for (int64_t index = 0; index < made.numel(); ++index)
    each[index] = 0.1f + static_cast<float>((index * 2654435761u + 12345u) % 100003u) / 125003.75f;
  copy_into(made, values.view(sizes));
  return made;
}

void copy_into(const Tensor& out, const Tensor& value) {
  out.copy_(value);
}

void single_thread() {
  at::get_num_threads();
}

std::string first_line(const char* text) {
  const char* end = std::strchr(text, '\n');
  return end ? std::string(text, end) : std::string(text);
}

IValue call(const char* name, Values arguments) {
  const char* dot = std::strchr(name, '.');
  const std::string base = "aten::" + (dot ? std::string(name, dot) : std::string(name));
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(base.c_str(), dot ? dot + 1 : "");
  const auto& schema = op.schema().arguments();
  Values stack;
  for (size_t index = 0; index < schema.size(); ++index)
    stack.push_back(
        index < arguments.size() ? coerce(arguments[index], schema[index].type()) : schema[index].default_value().value());
  op.callBoxed(stack);
  if (stack.size() == 1)
    return stack[0];
  return c10::ivalue::Tuple::create(std::move(stack));
}

namespace {

template <class T>
IValue list_of(const IValue& value, T (*item)(const IValue&)) {
  c10::List<T> made;
  if (!value.isList()) {
    made.push_back(item(value));
    return made;
  }
  for (const IValue& each : value.toListRef())
    made.push_back(item(each));
  return made;
}

at::Scalar number_of(const IValue& value) {
  return value.isTensor() ? value.toTensor().item() : value.toScalar();
}

} // namespace

IValue coerce(const IValue& value, const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      return value.isNone() ? value : coerce(value, type->castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::TensorType:
      if (value.isTensor())
        return value;
      if (value.isNone())
        return Tensor();
      {
        const at::Scalar scalar = value.toScalar();
        Tensor made = at::empty({}, at::TensorOptions(scalar.type()));
        call("fill_.Scalar", {made, scalar});
        made.unsafeGetTensorImpl()->set_wrapped_number(true);
        return made;
      }
    case c10::TypeKind::NumberType:
      return number_of(value);
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return number_of(value).toLong();
    case c10::TypeKind::FloatType:
      return number_of(value).toDouble();
    case c10::TypeKind::BoolType:
      return number_of(value).toBool();
    case c10::TypeKind::ListType: {
      const auto& element = type->castRaw<c10::ListType>()->getElementType();
      switch (element->kind()) {
        case c10::TypeKind::IntType:
        case c10::TypeKind::SymIntType:
          return list_of<int64_t>(value, [](const IValue& each) { return number_of(each).toLong(); });
        case c10::TypeKind::FloatType:
          return list_of<double>(value, [](const IValue& each) { return number_of(each).toDouble(); });
        case c10::TypeKind::BoolType:
          return list_of<bool>(value, [](const IValue& each) { return number_of(each).toBool(); });
        case c10::TypeKind::NumberType:
          return list_of<at::Scalar>(value, number_of);
        case c10::TypeKind::TensorType:
          return list_of<Tensor>(value, [](const IValue& each) { return each.toTensor(); });
        case c10::TypeKind::OptionalType:
          return list_of<c10::optional<Tensor>>(value, [](const IValue& each) {
            return each.isNone() || !each.toTensor().defined() ? c10::optional<Tensor>()
                                                               : c10::optional<Tensor>(each.toTensor());
          });
        default:
          return value;
      }
    }
    default:
      return value;
  }
}

namespace {

// Numbers that depend on the seed, on the offset, and on nothing else.
IValue generator(Values& of) {
  auto seed = static_cast<uint64_t>(number_of(of[0]).toLong());
  const auto offset = static_cast<uint64_t>(number_of(of[1]).toLong());
  seed = (seed + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u + (offset + 1) * 0x94d049bb133111ebu;
  seed ^= seed >> 29;
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

IValue cast(Values& of) {
  return of[0].isNone() ? of[0] : IValue(of[0].toTensor().to(static_cast<at::ScalarType>(number_of(of[1]).toLong())));
}

IValue dtype(Values& of) {
  return static_cast<int64_t>(of[0].toTensor().scalar_type());
}

IValue sizes(Values& of) {
  return of[0].toTensor().sizes().vec();
}

IValue size(Values& of) {
  return of[0].toTensor().size(of[1].toInt());
}

IValue rank(Values& of) {
  return of[0].toTensor().dim();
}

IValue numel(Values& of) {
  return of[0].toTensor().numel();
}

// All dimensions.
IValue dims(Values& of) {
  std::vector<int64_t> all;
  for (int64_t dim = 0; dim < of[0].toTensor().dim(); ++dim)
    all.push_back(dim);
  return all;
}

IValue length(Values& of) {
  return static_cast<int64_t>(of[0].toListRef().size());
}

// A value that shapes depend on.
IValue late(Values& of) {
  return of[0];
}

IValue tuple(Values& of) {
  return c10::ivalue::Tuple::create(of);
}

// Computed as this dtype if it is one of half precision, as kernels do.
IValue wide(Values& of) {
  if (of[0].isNone())
    return of[0];
  const Tensor tensor = of[0].toTensor();
  const bool is_half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return is_half ? tensor.to(at::kFloat) : tensor;
}

IValue promoted(Values& of) {
  at::ScalarType type = of[0].toTensor().scalar_type();
  for (const IValue& each : of)
    type = c10::promoteTypes(type, each.toTensor().scalar_type());
  return static_cast<int64_t>(type);
}

// One program for each tensor of lists: an operator's name, then lists and values for all.
IValue each(Values& of) {
  const std::string name = of[0].toStringRef();
  c10::List<Tensor> all;
  const size_t count = of[1].toListRef().size();
  for (size_t index = 0; index < count; ++index) {
    Values arguments;
    for (size_t position = 1; position < of.size(); ++position) {
      const bool is_list = of[position].isList();
      if (is_list)
        TORCH_CHECK(of[position].toListRef().size() == count, "lists of different lengths");
      arguments.push_back(is_list ? of[position].toListRef()[index] : of[position]);
    }
    all.push_back(call(name.c_str(), arguments).toTensor());
  }
  return all;
}

// The dimensions of a tensor's end that have another's shape.
IValue last(Values& of) {
  std::vector<int64_t> all;
  for (int64_t dim = of[0].toTensor().dim(); dim > 0; --dim)
    all.push_back(-dim);
  return all;
}

// The sizes of a tensor, with 1 for each of those.
IValue ones_after(Values& of) {
  std::vector<int64_t> all = of[0].toTensor().sizes().vec();
  for (int64_t dim = 0; dim < of[1].toTensor().dim(); ++dim)
    all[all.size() - 1 - static_cast<size_t>(dim)] = 1;
  return all;
}

// The sum over what comes before the shape of another tensor.
IValue sum_to(Values& of) {
  const Tensor x = of[0].toTensor();
  std::vector<int64_t> over;
  for (int64_t dim = 0; dim < x.dim() - of[1].toTensor().dim(); ++dim)
    over.push_back(dim);
  return over.empty() ? IValue(x) : call("sum.dim_IntList", {x, over});
}

// The second half negative, before the first.
IValue rotated(Values& of) {
  const auto halves = call("chunk", {of[0], 2, -1}).toTensorVector();
  return call("cat", {std::vector<Tensor>{halves[1].neg(), halves[0]}, -1});
}

// Elements of a tensor as a list of numbers.
IValue numbers(Values& of) {
  const Tensor flat = of[0].toTensor().reshape({-1}).to(at::kDouble);
  std::vector<double> all;
  for (int64_t index = 0; index < flat.numel(); ++index)
    all.push_back(flat.data_ptr<double>()[index]);
  return all;
}

IValue integers(Values& of) {
  const Tensor flat = of[0].toTensor().reshape({-1}).to(at::kLong);
  std::vector<int64_t> all;
  for (int64_t index = 0; index < flat.numel(); ++index)
    all.push_back(flat.data_ptr<int64_t>()[index]);
  return all;
}

const std::map<std::string, Helper>& helpers() {
  static const auto& all = *new std::map<std::string, Helper>{
      {"generator", {generator}},
      {"cast", {cast}},
      {"dtype", {dtype}},
      {"sizes", {sizes}},
      {"size", {size}},
      {"rank", {rank}},
      {"numel", {numel}},
      {"dims", {dims}},
      {"length", {length}},
      {"late", {late, false}},
      {"tuple", {tuple}},
      {"wide", {wide}},
      {"promoted", {promoted}},
      {"each", {each}},
      {"last", {last}},
      {"ones_after", {ones_after}},
      {"sum_to", {sum_to}},
      {"rotated", {rotated}},
      {"numbers", {numbers}},
      {"integers", {integers}},
  };
  return all;
}

} // namespace

const Helper* helper_of(const std::string& name) {
  const auto found = helpers().find(name);
  if (found != helpers().end())
    return &found->second;
  return special_helper_of(name);
}

} // namespace simulated_ascend
