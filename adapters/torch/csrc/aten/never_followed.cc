// SPDX-License-Identifier: Apache-2.0
#include "aten/never_followed.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "aten/traits.h"
#include "runtime/native.h"

namespace flagos {

namespace {

// Parts of the names of operators that do more than their arguments say, or ask the device for something: graphs could
// not repeat them. The capture of a device that owns its streams finds the latter by itself, the host does not.
constexpr auto kNeverRepeat = std::to_array<std::string_view>({
    "linalg",
    "cholesky",
    "::lu_",
    "svd",
    "_qr",
    "triangular_solve",
    "ctc_loss",
    "unique",
    "cudnn_rnn",
    "thnn_",
    "histogram",
    "bincount",
    "multinomial",
    "sparse",
    "nested",
    "_assert",
    "resize",
    "::set_",
    "coalesce",
    "segment_reduce",
    "record_stream",
    "pin_memory",
    "storage",
    "quantize",
    "_lazy_clone",
    "masked_scatter",
    "repeat_interleave",
    "fractional",
});

// Of those whose CPU kernel raises errors about the elements that it reads: a program gets them where it made the call.
constexpr auto kRaiseByElements = std::to_array<std::string_view>({
    "index",      "gather", "scatter",      "embedding",    "nll_loss",   "take",   "put_",    "cross_entropy",
    "remainder",  "fmod",   "floor_divide", "::div",        "max_unpool", "renorm", "one_hot", "multi_margin",
    "multilabel", "::pow",  "shift",        "searchsorted", "histc",      "cdist",
});

bool has_one_of(std::string_view name, c10::ArrayRef<std::string_view> parts) {
  return std::any_of(
      parts.begin(), parts.end(), [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

} // namespace

const char* why_never_followed(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  if (!name.starts_with("aten::")) {
    return "operators of others";
  }
  // Draws unless that is 0 (`following::Operator::draws`), and its numbers follow from sizes.
  const bool is_attention = op.schema().argumentIndexWithName("dropout_p").has_value();
  for (const at::Tag tag : op.getTags()) {
    switch (tag) {
      case at::Tag::nondeterministic_seeded:
        if (!is_attention && !particulars_of(name).has(kDrawsNothing)) {
          return "random numbers";
        }
        break;
      case at::Tag::data_dependent_output:
        return "results on the host";
      case at::Tag::dynamic_output_shape:
        return "results whose shape depends on elements";
      default:
        break;
    }
  }
  for (const auto& result : op.schema().returns()) {
    const auto kind = result.type()->kind();
    const bool is_list = kind == c10::TypeKind::ListType &&
        result.type()->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
    if (kind != c10::TypeKind::TensorType && !is_list && !is_attention) {
      return "results on the host";
    }
  }
  if (has_one_of(name, kNeverRepeat)) {
    return "operators that ask the device, or do more than their arguments say";
  }
  if (native->host_computes() && has_one_of(name, kRaiseByElements)) {
    return "errors that depend on elements";
  }
  return nullptr;
}

} // namespace flagos
