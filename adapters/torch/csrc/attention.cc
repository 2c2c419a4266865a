// SPDX-License-Identifier: Apache-2.0
#include "attention.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "route.h"

namespace flagos {

namespace {

FlagosOpSlot* attention_slot = nullptr;
FlagosOpSlot* choice_slot = nullptr;

// The CPU's choice looks at shapes, types and switches only, so it holds for flagos tensors as they are.
int64_t fused_sdp_choice(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  enter_op(choice_slot, "aten::_fused_sdp_choice");
  return at::native::_fused_sdp_choice_cpp(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested();
}

// For device types it does not know torch takes the math decomposition, which is slower and rounds differently.
// This takes what the CPU takes; whatever is wrong with the arguments is left to torch to say.
at::Tensor scaled_dot_product_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  enter_op(attention_slot, "aten::scaled_dot_product_attention");
  const bool masked = attn_mask.has_value() && attn_mask->defined();
  const bool well_formed = is_plain(query) && is_plain(key) && is_plain(value) && query.dtype() == key.dtype() &&
      query.dtype() == value.dtype() && query.device() == key.device() && query.device() == value.device() &&
      query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && !(masked && is_causal) &&
      (!masked ||
       (attn_mask->device() == query.device() &&
        (attn_mask->scalar_type() == at::kBool || attn_mask->dtype() == query.dtype())));
  constexpr int64_t kFlash = 1; // sdp::SDPBackend::flash_attention
  if (!well_formed ||
      at::native::_fused_sdp_choice_cpp(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa) !=
          kFlash) {
    return at::native::scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
  }
  std::optional<at::Tensor> mask = attn_mask;
  if (masked && attn_mask->scalar_type() == at::kBool) {
    // True takes part: what does not gets -inf added.
    mask = at::zeros_like(*attn_mask, query.options())
               .masked_fill_(attn_mask->logical_not(), -std::numeric_limits<double>::infinity());
  }
  return std::get<0>(
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, mask, scale));
}

} // namespace

void register_attention(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered) {
  attention_slot = op_slot("aten::scaled_dot_product_attention");
  // A composite: below autograd in inference mode, above it otherwise.
  library.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
  autograd.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
  registered.emplace_back("aten::scaled_dot_product_attention");

  choice_slot = op_slot("aten::_fused_sdp_choice");
  library.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
  registered.emplace_back("aten::_fused_sdp_choice");
}

} // namespace flagos
