// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/statistics.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <unordered_map>

#include "aten/attention.h"

namespace flagos {

namespace {

// Places among the arguments. What decides comes first; the input is always there.
struct Places {
  size_t count; // of arguments
  std::array<size_t, 4> deciding;
  std::array<size_t, 2> statistics;
};

const std::unordered_map<std::string, Places>& known() {
  static const std::unordered_map<std::string, Places> places{
      // grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
      {"aten::native_layer_norm_backward", {8, {5, 6, 1, 1}, {3, 4}}},
      // grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask
      {"aten::native_group_norm_backward", {10, {4, 1, 1, 1}, {2, 3}}},
      // grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
      {"aten::native_batch_norm_backward", {10, {2, 3, 4, 1}, {5, 6}}},
  };
  return places;
}

} // namespace

void match_statistics(const std::string& op, torch::jit::Stack* arguments) {
  const auto found = known().find(op);
  if (found == known().end()) {
    return;
  }
  const Places& places = found->second;
  const auto argument = [&](size_t place) -> c10::IValue& {
    return (*arguments)[arguments->size() - places.count + place];
  };
  for (const size_t decides : places.deciding) {
    if (!argument(decides).isTensor() || !argument(decides).toTensor().defined()) {
      continue;
    }
    const c10::ScalarType dtype = argument(decides).toTensor().scalar_type();
    for (const size_t place : places.statistics) {
      if (argument(place).isTensor() && argument(place).toTensor().defined()) {
        argument(place) = argument(place).toTensor().to(dtype);
      }
    }
    return;
  }
}

void match_masks(const std::string& op, torch::jit::Stack* arguments) {
  // query, key, value, dropout_p, is_causal, attn_mask, scale; the backward has the mask in the same place from the end
  if (op.rfind("aten::_scaled_dot_product_flash_attention_for_cpu", 0) != 0) {
    return;
  }
  c10::IValue& mask = (*arguments)[arguments->size() - 2];
  const c10::IValue& query = (*arguments)[arguments->size() - (op.find("_backward") == std::string::npos ? 7 : 9)];
  if (!mask.isTensor() || !mask.toTensor().defined() || mask.toTensor().scalar_type() != at::kBool) {
    return;
  }
  mask = added_mask(mask.toTensor(), query.toTensor());
}

} // namespace flagos
