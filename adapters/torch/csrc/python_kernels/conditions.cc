// SPDX-License-Identifier: Apache-2.0
#include "python_kernels/conditions.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <c10/core/ScalarType.h>
#include <c10/util/llvmMathExtras.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "aten/boxed.h"

namespace flagos {

uint32_t size_class(int64_t size) {
  return size < 4 ? 0 : static_cast<uint32_t>(63 - c10::llvm::countLeadingZeros(static_cast<uint64_t>(size))) / 2;
}

namespace {

constexpr uint32_t kOrdinary = 1U << 0;
constexpr uint32_t kNonempty = 1U << 1;
constexpr uint32_t kDimensioned = 1U << 2;
constexpr uint32_t kFloating = 1U << 3;
constexpr uint32_t kUniform = 1U << 4;
constexpr uint32_t kAligned = 1U << 5;
constexpr uint32_t kContiguous = 1U << 6;
constexpr uint32_t kUnknown = 1U << 7;
constexpr uint32_t kSizes = 1U << 8; // has no name of its own: which sizes differs from kernel to kernel

// The name of each bit.
constexpr std::array<const char*, 7>
    kNames{"ordinary", "nonempty", "dimensioned", "floating", "uniform", "aligned", "contiguous"};

// The bit of a dtype; 0 for an integer that was passed as a dtype and is none.
constexpr uint64_t bit(c10::ScalarType dtype) {
  const auto number = static_cast<uint8_t>(dtype);
  return number < 64 ? uint64_t{1} << number : 0;
}

// The dtypes in which kernels are verified.
constexpr uint64_t kOrdinaryTypes =
    bit(at::kFloat) | bit(at::kBFloat16) | bit(at::kHalf) | bit(at::kLong) | bit(at::kBool);
static_assert(static_cast<uint8_t>(c10::ScalarType::NumOptions) < 64, "a bit for each type");

constexpr int64_t kAlignment = 16; // bytes

// The prefix of a condition on sizes. torch_fl/flaggems/sizes.py writes it.
constexpr std::string_view kSizesAre = "sizes ";

bool holds(uint32_t classes, int64_t size) {
  return (classes >> size_class(size) & 1U) != 0;
}

// The names that schemas give to arguments that select elements.
constexpr std::array<const char*, 4> kSelecting{"index", "indices", "mask", "condition"};

bool is_dtype(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

bool is_ordinary(c10::ScalarType dtype) {
  return (kOrdinaryTypes & bit(dtype)) != 0;
}

// Whether a TMA tensor map can describe the tensor: stride 1 along one dimension, multiples of 16 bytes along the
// others.
bool is_aligned(const at::Tensor& tensor) {
  if (tensor.dim() < 2) {
    return true;
  }
  if (tensor.layout() != c10::kStrided || !tensor.has_storage() ||
      reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kAlignment != 0) {
    return false;
  }
  const auto size = static_cast<int64_t>(tensor.itemsize());
  bool neighbours = false;
  bool rows = false;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    const int64_t stride = tensor.stride(i);
    if (stride == 1) {
      neighbours = true;
      if (tensor.size(i) > 1) {
        if (rows) {
          return false; // two dimensions of stride 1 overlap
        }
        rows = true;
      }
    } else if (stride == 0 || stride * size % kAlignment != 0) {
      return false;
    }
  }
  return neighbours;
}

// `common` is the dtype of the tensors before this one (Undefined if there were none), and becomes this one's.
uint32_t broken_by_tensor(const at::Tensor& tensor, bool selects, uint32_t required, c10::ScalarType& common) {
  if (!tensor.defined()) {
    return 0;
  }
  const c10::ScalarType dtype = tensor.scalar_type();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return c10::isComplexType(dtype) ? kOrdinary : 0; // Python gets it as a number
  }
  uint32_t uniform = 0;
  if (!selects) {
    uniform = common == c10::ScalarType::Undefined || common == dtype ? 0 : kUniform;
    common = dtype;
  }
  return uniform | (is_ordinary(dtype) ? 0 : kOrdinary) | (tensor.numel() == 0 ? kNonempty : 0) |
      (tensor.dim() == 0 ? kDimensioned : 0) | (c10::isFloatingType(dtype) || selects ? 0 : kFloating) |
      ((required & kAligned) == 0 || is_aligned(tensor) ? 0 : kAligned) |
      (tensor.layout() == c10::kStrided && tensor.is_contiguous() ? 0 : kContiguous);
}

uint32_t broken_by_value(const c10::IValue& value, bool selects, uint32_t required, c10::ScalarType& common) {
  if (value.isTensor()) {
    return broken_by_tensor(value.toTensor(), selects, required, common);
  }
  return value.isComplexDouble() ? kOrdinary : 0;
}

} // namespace

bool Conditions::parse_sizes(const std::string& text, std::vector<Sizes>& sizes) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    size_t place = 0;
    Sizes found;
    int end = 0;
    if (std::sscanf(word.c_str(), "%zu:%x/%x/%x%n", &place, &found.elements, &found.rows, &found.columns, &end) != 4 ||
        static_cast<size_t>(end) != word.size() || place >= sizes.size()) {
      return false;
    }
    sizes[place] = found;
  }
  return true;
}

bool Conditions::verified_at(const c10::IValue& value, const Sizes& sizes) {
  if (value.isList()) {
    const auto elements = value.toListRef();
    return std::all_of(
        elements.begin(), elements.end(), [&](const c10::IValue& element) { return verified_at(element, sizes); });
  }
  if (!value.isTensor() || !value.toTensor().defined()) {
    return true;
  }
  const at::Tensor& tensor = value.toTensor();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return true;
  }
  const int64_t elements = tensor.numel();
  const int64_t columns = tensor.dim() == 0 ? 1 : tensor.size(-1);
  return holds(sizes.elements, elements) && holds(sizes.columns, columns) &&
      holds(sizes.rows, columns == 0 ? 0 : elements / columns);
}

Conditions::Conditions(const c10::FunctionSchema& schema, const std::vector<std::string>& names) {
  for (const c10::Argument& argument : schema.arguments()) {
    const bool selects = std::find(kSelecting.begin(), kSelecting.end(), argument.name()) != kSelecting.end();
    arguments_.push_back({selects, is_dtype(argument)});
  }
  for (const std::string& name : names) {
    if (name.rfind(kSizesAre, 0) == 0) {
      sizes_.resize(arguments_.size());
      required_ |= parse_sizes(name.substr(kSizesAre.size()), sizes_) ? kSizes : kSizes | kUnknown;
      continue;
    }
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

const std::vector<std::string>& Conditions::names() {
  static const std::vector<std::string> names(kNames.begin(), kNames.end());
  return names;
}

uint32_t Conditions::broken_by(const torch::jit::Stack& stack) const {
  const size_t first = stack.size() - arguments_.size();
  uint32_t broken = kUnknown;
  c10::ScalarType common = c10::ScalarType::Undefined;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    broken |= verified_at(stack[first + i], sizes_[i]) ? 0 : kSizes;
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    const Argument argument = arguments_[i];
    if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        broken |= broken_by_value(element, argument.selects, required_, common);
      }
    } else if (value.isInt()) {
      const bool ordinary = !argument.is_dtype || is_ordinary(static_cast<c10::ScalarType>(value.toInt()));
      broken |= ordinary ? 0 : kOrdinary;
    } else {
      broken |= broken_by_value(value, argument.selects, required_, common);
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
  if ((broken & kSizes) != 0) {
    add("the sizes");
  }
  if ((broken & kUnknown) != 0) {
    for (const std::string& name : unknown_) {
      add(name);
    }
  }
  return text;
}

std::vector<std::string> conditions_held(
    const std::string& name,
    at::TensorList tensors,
    at::IntArrayRef tensors_at,
    at::IntArrayRef complex_at,
    std::optional<at::ScalarType> dtype,
    const std::vector<std::string>& more) {
  const auto op = find_operator(name);
  TORCH_CHECK(op.has_value(), "flagos: torch has no operator ", name);
  TORCH_CHECK(
      tensors.size() == tensors_at.size(),
      "flagos: conditions_held takes the place of each tensor, got ",
      tensors_at.size(),
      " places of ",
      tensors.size(),
      " tensors");
  const auto& arguments = op->schema().arguments();
  std::vector<c10::impl::GenericList> values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    values.emplace_back(c10::AnyType::get()); // one by one, as copies of a list are the same list
  }
  const auto add = [&](int64_t place, c10::IValue value) {
    TORCH_CHECK(
        0 <= place && place < static_cast<int64_t>(values.size()), "flagos: ", name, " has no argument number ", place);
    values[static_cast<size_t>(place)].push_back(std::move(value));
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    add(tensors_at[i], tensors[i]);
  }
  for (const int64_t place : complex_at) {
    add(place, c10::complex<double>(0, 1));
  }
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (dtype.has_value() && is_dtype(arguments[i])) {
      stack.emplace_back(static_cast<int64_t>(*dtype));
    } else {
      stack.emplace_back(std::move(values[i]));
    }
  }
  const uint32_t broken = Conditions(op->schema(), Conditions::names()).broken_by(stack);
  std::vector<std::string> held;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if ((broken >> i & 1U) == 0) {
      held.emplace_back(kNames[i]);
    }
  }
  for (const std::string& name : more) {
    if (Conditions(op->schema(), {name}).broken_by(stack) == 0) {
      held.push_back(name);
    }
  }
  return held;
}

} // namespace flagos
