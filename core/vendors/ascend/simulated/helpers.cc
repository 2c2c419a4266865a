// SPDX-License-Identifier: Apache-2.0
#include "helpers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
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
        index < arguments.size() ? coerce(arguments[index], schema[index].type())
                                 : schema[index].default_value().value());
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
          return list_of<std::optional<Tensor>>(value, [](const IValue& each) {
            return each.isNone() || !each.toTensor().defined() ? std::optional<Tensor>()
                                                               : std::optional<Tensor>(each.toTensor());
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
  auto offset = static_cast<uint64_t>(number_of(of[1]).toLong());
  if (of.size() > 2)
    offset += static_cast<uint64_t>(number_of(of[2]).toLong());
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

// Indices of dimensions. An empty tensor stands for a dimension that is taken whole, which the vendor's library has no
// other way to tell: it refuses a list with NULL.
IValue indices(Values& of) {
  c10::List<std::optional<Tensor>> all;
  for (const IValue& each : of[0].toListRef()) {
    const bool given = each.isTensor() && each.toTensor().defined() && each.toTensor().numel() != 0;
    all.push_back(given ? std::optional<Tensor>(each.toTensor()) : std::nullopt);
  }
  return all;
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

// A tensor of one value for each channel, in the shape of another; nothing is 1.
IValue channel(Values& of) {
  if (of[0].isNone())
    return 1.0;
  const Tensor values = of[0].toTensor();
  std::vector<int64_t> shape(static_cast<size_t>(of[1].toTensor().dim()), 1);
  if (shape.size() > 1)
    shape[1] = values.numel();
  else if (!shape.empty())
    shape[0] = values.numel();
  const Tensor wide = values.scalar_type() == at::kHalf || values.scalar_type() == at::kBFloat16
      ? values.to(of[1].toTensor().scalar_type())
      : values;
  return wide.reshape(shape);
}

// The sum over all but channels, in another's shape.
IValue sum_channel(Values& of) {
  const Tensor x = of[0].toTensor();
  const Tensor like = of[1].toTensor();
  std::vector<int64_t> over;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if (dim != 1 || like.numel() == 1)
      over.push_back(dim);
  }
  return call("sum.dim_IntList", {x, over}).toTensor().reshape(like.sizes());
}

IValue sum_of(Values& of) {
  Tensor sum;
  for (const Tensor& each : of[0].toTensorVector())
    sum = sum.defined() ? call("add.Tensor", {sum, each}).toTensor() : each.clone();
  return sum;
}

IValue most_of(Values& of) {
  Tensor most;
  for (const Tensor& each : of[0].toTensorVector())
    most = most.defined() ? call("maximum", {most, each}).toTensor() : each.clone();
  return most;
}

IValue least_of(Values& of) {
  Tensor least;
  for (const Tensor& each : of[0].toTensorVector())
    least = least.defined() ? call("minimum", {least, each}).toTensor() : each.clone();
  return least;
}

// Numbers of classes along one dimension of what has one more than this.
IValue classes(Values& of) {
  const int64_t rank = of[0].toTensor().dim() + 1;
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(of[1].toInt() < 0 ? of[1].toInt() + rank : of[1].toInt())] = of[2].toInt();
  return call("arange", {of[2]}).toTensor().reshape(shape);
}

// The first element, of no dimension.
IValue first_of(Values& of) {
  return of[0].toTensor().reshape({-1}).select(0, 0);
}

// Which element of the input each of the repeated ones is.
IValue repeated(Values& of) {
  return call("repeat_interleave.Tensor", {of[0].toTensor().reshape({-1}).to(at::kLong)});
}

IValue all_after(Values& of) {
  std::vector<int64_t> all;
  for (int64_t dim = 2; dim < of[0].toTensor().dim(); ++dim)
    all.push_back(dim);
  return all;
}

IValue all_but_channels(Values& of) {
  std::vector<int64_t> all;
  for (int64_t dim = 0; dim < of[0].toTensor().dim(); ++dim) {
    if (dim != 1)
      all.push_back(dim);
  }
  return all;
}

// Pairs of neighbours, the second negative before the first.
IValue turned(Values& of) {
  const Tensor x = of[0].toTensor();
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() /= 2;
  shape.push_back(2);
  const Tensor pairs = x.reshape(shape);
  const std::vector<Tensor> both{pairs.select(-1, 1).neg(), pairs.select(-1, 0)};
  return call("stack", {both, -1}).toTensor().reshape(x.sizes());
}

// input, dim, without the element itself, from the end
IValue cumsum_of(Values& of) {
  const Tensor x = of[0].toTensor();
  const int64_t dim = of[1].toInt();
  const auto turned = [&](const Tensor& y) {
    return number_of(of[3]).toBool() ? call("flip", {y, std::vector<int64_t>{dim}}).toTensor() : y;
  };
  const Tensor begin = turned(x);
  Tensor sum = call("cumsum", {begin, dim, static_cast<int64_t>(x.scalar_type())}).toTensor();
  if (number_of(of[2]).toBool())
    sum = call("sub.Tensor", {sum, begin}).toTensor();
  return turned(sum);
}

// input, starts, ends, axes, steps
IValue slices(Values& of) {
  Tensor x = of[0].toTensor();
  const auto axes = of[3].toIntVector();
  for (size_t index = 0; index < axes.size(); ++index)
    x = x.slice(axes[index], of[1].toIntVector()[index], of[2].toIntVector()[index], of[4].toIntVector()[index]);
  return x.clone();
}

// input, dim, index of any shape, which takes the place of the dimension
IValue gather_all(Values& of) {
  const Tensor x = of[0].toTensor();
  const Tensor index = of[2].toTensor();
  const int64_t dim = of[1].toInt() < 0 ? of[1].toInt() + x.dim() : of[1].toInt();
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().begin() + dim);
  shape.insert(shape.end(), index.sizes().begin(), index.sizes().end());
  shape.insert(shape.end(), x.sizes().begin() + dim + 1, x.sizes().end());
  return call("index_select", {x, dim, index.reshape({-1})}).toTensor().reshape(shape);
}

// The last dimension of indices as one tensor for each dimension.
c10::List<std::optional<Tensor>> each_index(const Tensor& indices) {
  c10::List<std::optional<Tensor>> all;
  for (int64_t dim = 0; dim < indices.size(-1); ++dim)
    all.push_back(std::optional<Tensor>(indices.select(-1, dim).to(at::kLong)));
  return all;
}

IValue gather_nd(Values& of) {
  return call("index.Tensor", {of[0], each_index(of[1].toTensor())});
}

IValue scatter_nd(Values& of) {
  return call("index_put", {of[0], each_index(of[1].toTensor()), of[2], false});
}

// Whether elements are negative, as bits, the lowest first: input, rows
IValue pack_signs(Values& of) {
  const Tensor x = of[0].toTensor().to(at::kFloat).contiguous();
  const int64_t bytes = (x.numel() + 7) / 8;
  Tensor packed = call("zeros", {std::vector<int64_t>{bytes}, static_cast<int64_t>(at::kByte)}).toTensor();
  for (int64_t index = 0; index < bytes * 8; ++index) {
    const bool bit = index < x.numel() && !(x.data_ptr<float>()[index] < 0);
    auto& byte = packed.data_ptr<uint8_t>()[index / 8];
    byte = static_cast<uint8_t>(byte | (bit ? 1 << (index % 8) : 0));
  }
  return packed.reshape({of[1].toInt(), -1});
}

// bits, rows, dtype
IValue unpack_signs(Values& of) {
  const Tensor bits = of[0].toTensor().contiguous();
  Tensor x = call("zeros", {std::vector<int64_t>{bits.numel() * 8}, static_cast<int64_t>(at::kFloat)}).toTensor();
  for (int64_t index = 0; index < x.numel(); ++index)
    x.data_ptr<float>()[index] = bits.data_ptr<uint8_t>()[index / 8] >> (index % 8) & 1 ? 1.0f : -1.0f;
  return x.to(static_cast<at::ScalarType>(of[2].toInt())).reshape({of[1].toInt(), -1});
}

// weight, indices, offsets, scaled, mode, weights of samples, last offset included, padding; of which bag an index is
// and how many a bag has are told for each mode.
IValue embedding_bag(Values& of) {
  const IValue all = call("_embedding_bag", {of[0], of[1], of[2], of[3], of[4], false, of[5], of[6], of[7]});
  const auto& parts = all.toTupleRef().elements();
  const Tensor offsets = of[2].toTensor().to(at::kLong).contiguous();
  const int64_t bags = parts[0].toTensor().size(0);
  const int64_t count = of[1].toTensor().numel();
  const auto type = static_cast<int64_t>(at::kLong);
  Tensor bag_of = call("zeros", {std::vector<int64_t>{count}, type}).toTensor();
  Tensor sizes = call("zeros", {std::vector<int64_t>{bags}, type}).toTensor();
  for (int64_t bag = 0; bag < bags; ++bag) {
    const auto* begins = offsets.data_ptr<int64_t>();
    const int64_t end = bag + 1 < offsets.numel() ? begins[bag + 1] : count;
    for (int64_t index = begins[bag]; index >= 0 && index < std::min(end, count); ++index) {
      bag_of.data_ptr<int64_t>()[index] = bag;
      ++sizes.data_ptr<int64_t>()[bag];
    }
  }
  const bool is_most = number_of(of[4]).toLong() == 2;
  return c10::ivalue::Tuple::create(Values{parts[0], bag_of, sizes, is_most ? parts[3] : call("zeros_like", {sizes})});
}

// Numbers as a tensor of indices.
IValue as_tensor(Values& of) {
  const auto values = of[0].toIntVector();
  const auto count = static_cast<int64_t>(values.size());
  Tensor made = call("zeros", {std::vector<int64_t>{count}, static_cast<int64_t>(at::kLong)}).toTensor();
  std::copy(values.begin(), values.end(), made.data_ptr<int64_t>());
  return made;
}

// data, indices [batch] or [batch, count], updates, axis: slices of the axis from an index on are replaced
IValue scatter_update(Values& of) {
  const Tensor made = of[0].toTensor().clone();
  const Tensor indices = of[1].toTensor().to(at::kLong);
  const Tensor updates = of[2].toTensor();
  const int64_t axis = of[3].toInt() < 0 ? of[3].toInt() + made.dim() : of[3].toInt();
  const auto place = [&](const Tensor& into, const Tensor& from, int64_t at) {
    into.slice(axis - 1, at, at + from.size(axis - 1)).copy_(from);
  };
  for (int64_t batch = 0; batch < updates.size(0); ++batch) {
    if (indices.dim() < 2) {
      place(made.select(0, batch), updates.select(0, batch), indices.reshape({-1}).select(0, batch).item().toLong());
      continue;
    }
    for (int64_t index = 0; index < indices.size(1); ++index) {
      const int64_t at = indices.select(0, batch).select(0, index).item().toLong();
      place(made.select(0, batch), updates.select(0, batch).slice(axis - 1, index, index + 1), at);
    }
  }
  return made;
}

// Padding of both sides of two dimensions, which must be the same on both.
IValue pads(Values& of) {
  TORCH_CHECK(of[1].toInt() == 0, "automatic padding is not simulated");
  const auto all = of[0].toIntVector();
  if (all.size() != 4)
    return of[0];
  TORCH_CHECK(all[0] == all[2] && all[1] == all[3], "uneven padding is not simulated");
  return std::vector<int64_t>{all[0], all[1]};
}

// input, mean, inverse deviation, groups
IValue normalised(Values& of) {
  const Tensor x = of[0].toTensor().to(at::kFloat);
  const Tensor groups = x.reshape({x.size(0), of[3].toInt(), -1});
  const auto column = [](const IValue& value) { return value.toTensor().to(at::kFloat).unsqueeze(-1); };
  const Tensor centred = call("sub.Tensor", {groups, column(of[1])}).toTensor();
  return call("mul.Tensor", {centred, column(of[2])}).toTensor().reshape(x.sizes());
}

IValue greatest(Values& of) {
  int64_t most = 0;
  for (const int64_t each : of[0].toIntVector())
    most = std::max(most, each);
  return most;
}

// The gradient of a loss, of no dimension unless nothing is reduced.
IValue as_loss(Values& of) {
  return number_of(of[1]).toLong() == 0 || of[0].toTensor().numel() != 1 ? of[0] : IValue(of[0].toTensor().reshape({}));
}

// What must be so on this chip: condition, text.
IValue require(Values& of) {
  TORCH_CHECK(!of[0].isNone() && number_of(of[0]).toBool(), of[1].toStringRef());
  return true;
}

// Whether all numbers of a list are 1.
IValue all_ones(Values& of) {
  for (const int64_t each : of[0].toIntVector()) {
    if (each != 1)
      return false;
  }
  return true;
}

// A factor of a product as the mode of its unit takes it: 0 as it is, 1 and 3 with 11 bits of mantissa, 2 as FLOAT16,
// 4 summed with more care.
IValue cube(Values& of) {
  const int64_t mode = of[1].toInt();
  TORCH_CHECK(mode >= 0 && mode <= 4, "cubeMathType cannot be ", mode);
  if (of[0].isNone())
    return of[0];
  const Tensor x = of[0].toTensor();
  TORCH_CHECK(mode != 2 || x.scalar_type() != at::kBFloat16, "cubeMathType cannot be 2 for BFLOAT16");
  TORCH_CHECK(mode != 3 || x.scalar_type() == at::kFloat, "cubeMathType can be 3 for FLOAT alone");
  if (x.scalar_type() != at::kFloat || mode == 0 || mode == 4)
    return x;
  if (mode == 2)
    return x.to(at::kHalf).to(at::kFloat);
  Tensor rounded = x.contiguous().clone();
  auto* bits = reinterpret_cast<uint32_t*>(rounded.data_ptr<float>());
  for (int64_t index = 0; index < rounded.numel(); ++index)
    bits[index] = (bits[index] + 0x800) & ~uint32_t{0xfff};
  return rounded;
}

// The one element of a tensor.
IValue first(Values& of) {
  return of[0].toTensor().item();
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
      {"indices", {indices, true, false}},
      {"tuple", {tuple}},
      {"wide", {wide}},
      {"promoted", {promoted}},
      {"each", {each}},
      {"last", {last}},
      {"ones_after", {ones_after}},
      {"sum_to", {sum_to}},
      {"rotated", {rotated}},
      {"channel", {channel}},
      {"sum_channel", {sum_channel}},
      {"sum_of", {sum_of}},
      {"most_of", {most_of}},
      {"least_of", {least_of}},
      {"classes", {classes}},
      {"first_of", {first_of}},
      {"repeated", {repeated, false}},
      {"all_after", {all_after}},
      {"all_but_channels", {all_but_channels}},
      {"turned", {turned}},
      {"cumsum", {cumsum_of}},
      {"slices", {slices}},
      {"gather_all", {gather_all}},
      {"gather_nd", {gather_nd}},
      {"scatter_nd", {scatter_nd}},
      {"pack_signs", {pack_signs}},
      {"unpack_signs", {unpack_signs}},
      {"embedding_bag", {embedding_bag}},
      {"as_tensor", {as_tensor}},
      {"scatter_update", {scatter_update, false}},
      {"pads", {pads}},
      {"normalised", {normalised}},
      {"greatest", {greatest}},
      {"as_loss", {as_loss}},
      {"require", {require}},
      {"all_ones", {all_ones}},
      {"cube", {cube}},
      {"first", {first}},
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
