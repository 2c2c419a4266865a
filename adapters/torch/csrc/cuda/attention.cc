// SPDX-License-Identifier: Apache-2.0
#include "aten/attention.h"

#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/pad.h>

#include "aten/layout.h"
#include "cuda/register.h"
#include "cuda/to.h"

namespace flagos {

namespace {

// CUDA's choice asks whether a gradient is required, which an alias alone does not show.
at::Tensor shown_with_gradient(const at::Tensor& tensor) {
  at::Tensor view = shown_to_cuda(tensor);
  return tensor.requires_grad() && !view.requires_grad() ? with_requires_grad(view) : view;
}

int64_t choose(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  const bool masked = attn_mask.has_value() && attn_mask->defined();
  return at::_ops::_fused_sdp_choice::redispatch(
      native->keys,
      shown_with_gradient(query),
      shown_with_gradient(key),
      shown_with_gradient(value),
      masked ? std::optional<at::Tensor>(shown_with_gradient(*attn_mask)) : std::nullopt,
      dropout_p,
      is_causal,
      scale,
      enable_gqa);
}

// Flash kernels need rows of a multiple of 8 elements; padding with zeros changes no product.
at::Tensor padded(const at::Tensor& tensor) {
  const c10::SymInt last = tensor.sym_size(-1);
  const c10::SymInt missing = (8 - last % 8) % 8;
  return missing == 0 ? tensor : at::pad_symint(tensor, {c10::SymInt(0), missing});
}

at::Tensor flash(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& /*attn_mask: CUDA's choice is flash only without*/,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale) {
  const double own_scale = sdp::calculate_scale(query, scale).guard_float(__FILE__, __LINE__);
  const c10::SymInt width = query.sym_size(-1);
  const at::Tensor output = std::get<0>(at::_scaled_dot_product_flash_attention(
      padded(query),
      padded(key),
      padded(value),
      dropout_p,
      is_causal,
      /*return_debug_mask=*/false,
      own_scale));
  return output.sym_size(-1) == width ? output : output.narrow_symint(-1, 0, width);
}

} // namespace

NativeAttention cuda_attention() {
  return {&choose, &flash};
}

} // namespace flagos
