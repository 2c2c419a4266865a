// SPDX-License-Identifier: Apache-2.0
#include "python_kernels/speeds.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "python_kernels/conditions.h"

namespace flagos {

namespace {

constexpr std::array<std::string_view, 5> kIgnoredNames{"memory_format", "layout", "device", "pin_memory", "generator"};
constexpr size_t kTold = 4; // tensors whose layouts and sizes count

// What a part of a class says.
enum class Part : uint64_t {
  kDtype,
  kLayouts,
  kSmall,
  kElements,
  kRows,
  kColumns,
  kTensors,
  kAbsent,
  kAlong,
  kNumber,
};

// A number for each layout of a tensor: contiguous; a matrix column by column; any other.
uint64_t layout_of(const c10::TensorImpl& tensor) {
  if (tensor.layout() != c10::kStrided) {
    return 3;
  }
  if (tensor.is_contiguous()) {
    return 1;
  }
  return tensor.dim() >= 2 && tensor.stride(-2) == 1 ? 2 : 3;
}

// Tensors without dimensions on the host are numbers, and their values say nothing of the speed.
bool counts(const c10::TensorImpl& tensor) {
  return !tensor.is_wrapped_number() && !(tensor.device_type() == c10::DeviceType::CPU && tensor.dim() == 0);
}

struct Number {
  uint64_t hash = 0;

  void add(Part part, int64_t value) {
    constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
    for (const uint64_t word : {static_cast<uint64_t>(part), static_cast<uint64_t>(value)}) {
      hash = (hash ^ (word + 1)) * kMultiplier;
      hash ^= hash >> 29;
    }
  }
};

struct Words {
  std::ostringstream text;

  void add(Part part, int64_t value) {
    text << (text.tellp() > 0 ? " " : "");
    switch (part) {
      case Part::kDtype:
        text << c10::toString(static_cast<c10::ScalarType>(value));
        break;
      case Part::kLayouts:
        text << "layouts:";
        for (uint64_t left = static_cast<uint64_t>(value); left != 0; left >>= 2U) {
          text << "?cts"[left & 3U];
        }
        break;
      case Part::kSmall:
        text << "small";
        break;
      case Part::kElements:
        text << "elements:4^" << value;
        break;
      case Part::kRows:
        text << "rows:4^" << value;
        break;
      case Part::kColumns:
        text << "columns:4^" << value;
        break;
      case Part::kTensors:
        text << "tensors:" << value;
        break;
      case Part::kAbsent:
        text << "without:" << value;
        break;
      case Part::kAlong:
        text << "dim:" << value;
        break;
      case Part::kNumber:
        text << "number:" << value;
        break;
    }
  }
};

} // namespace

CallClasses::CallClasses(const c10::OperatorHandle& op) : pointwise_(op.hasTag(at::Tag::pointwise)) {
  for (const c10::Argument& argument : op.schema().arguments()) {
    const std::string_view name = argument.name();
    const bool ignored = std::find(kIgnoredNames.begin(), kIgnoredNames.end(), name) != kIgnoredNames.end();
    kinds_.push_back(ignored ? Kind::kIgnored : name.rfind("dim", 0) == 0 ? Kind::kAlong : Kind::kPlain);
  }
}

template <class Sink>
void CallClasses::describe(const torch::jit::Stack& stack, Sink& sink) const {
  const size_t first = stack.size() - kinds_.size();
  c10::SmallVector<const c10::TensorImpl*, 8> tensors; // borrowed
  int64_t largest = 0;
  int64_t rank = 0;
  const auto take = [&](const at::Tensor& tensor) {
    const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    if (tensor.defined() && counts(*impl)) {
      largest = std::max(largest, impl->numel());
      rank = tensors.empty() ? impl->dim() : rank;
      tensors.push_back(impl);
    }
  };
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    if (kinds_[i] == Kind::kIgnored) {
      continue;
    }
    if (value.isTensor()) {
      take(value.toTensor());
    } else if (value.isTensorList()) {
      const auto list = value.toTensorList();
      for (const at::Tensor& tensor : list) {
        take(tensor);
      }
      sink.add(Part::kTensors, static_cast<int64_t>(std::min<size_t>(list.size(), 8)));
    } else if (value.isOptionalTensorList()) {
      size_t count = 0;
      for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
        if (tensor.has_value() && tensor->defined()) {
          ++count;
          take(*tensor);
        }
      }
      sink.add(Part::kTensors, static_cast<int64_t>(std::min<size_t>(count, 8)));
    } else if (value.isNone() && !pointwise_) {
      sink.add(Part::kAbsent, static_cast<int64_t>(i));
    } else if (kinds_[i] == Kind::kAlong && value.isInt()) {
      const int64_t dim = value.toInt();
      sink.add(Part::kAlong, dim >= 0 ? dim - rank : dim);
    } else if (kinds_[i] == Kind::kAlong && value.isIntList()) {
      for (const int64_t dim : value.toIntVector()) {
        sink.add(Part::kAlong, dim >= 0 ? dim - rank : dim);
      }
    } else if (!pointwise_ && value.isInt()) {
      const int64_t number = value.toInt();
      sink.add(Part::kNumber, number < 16 ? number : 16 + size_class(number));
    } else if (!pointwise_ && value.isBool()) {
      sink.add(Part::kNumber, value.toBool() ? 1 : 0);
    }
  }
  c10::ScalarType before = c10::ScalarType::Undefined;
  for (const c10::TensorImpl* tensor : tensors) {
    if (const c10::ScalarType dtype = c10::typeMetaToScalarType(tensor->dtype()); dtype != before) {
      before = dtype;
      sink.add(Part::kDtype, static_cast<int64_t>(dtype));
    }
  }
  const auto told = c10::ArrayRef<const c10::TensorImpl*>(tensors).slice(0, std::min(tensors.size(), kTold));
  uint64_t layouts = 0;
  bool contiguous = true;
  bool alike = true;
  for (size_t i = 0; i < told.size(); ++i) {
    const uint64_t layout = layout_of(*told[i]);
    layouts |= layout << 2 * i;
    contiguous = contiguous && layout == 1;
    alike = alike && told[i]->sizes() == told.front()->sizes();
  }
  if (!contiguous) {
    sink.add(Part::kLayouts, static_cast<int64_t>(layouts));
  }
  if (largest < kSmall) {
    sink.add(Part::kSmall, 0);
    return;
  }
  if (pointwise_ && alike) {
    sink.add(Part::kElements, size_class(largest));
    return;
  }
  for (const c10::TensorImpl* tensor : told) {
    const int64_t columns = tensor->dim() == 0 ? 1 : tensor->size(-1);
    sink.add(Part::kRows, size_class(columns == 0 ? 0 : tensor->numel() / columns));
    sink.add(Part::kColumns, size_class(columns));
  }
}

uint64_t CallClasses::number(const torch::jit::Stack& stack) const {
  Number number;
  describe(stack, number);
  return number.hash;
}

std::string CallClasses::words(const torch::jit::Stack& stack) const {
  Words words;
  describe(stack, words);
  return words.text.str();
}

Speeds::Speeds(const c10::OperatorHandle& op, std::vector<uint64_t> faster) : classes_(op), faster_(std::move(faster)) {
  std::sort(faster_.begin(), faster_.end());
}

bool Speeds::faster(const torch::jit::Stack& stack) const {
  return std::binary_search(faster_.begin(), faster_.end(), classes_.number(stack));
}

} // namespace flagos
