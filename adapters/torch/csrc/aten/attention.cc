// SPDX-License-Identifier: Apache-2.0
#include "aten/register.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <utility>

#include "aten/layout.h"
#include "aten/route.h"
#include "cuda/to.h"

namespace flagos {

namespace {

FlagosOpSlot* attention_slot = nullptr;
FlagosOpSlot* choice_slot = nullptr;

// CUDA's choice asks whether a gradient is required, too.
at::Tensor shown_with_gradient(const at::Tensor& tensor) {
  at::Tensor view = shown_to_cuda(tensor);
  return tensor.requires_grad() && !view.requires_grad() ? with_requires_grad(view) : view;
}

// The native device's choice. The CPU's looks at shapes, types and switches only, so it holds for flagos tensors as
// they are; CUDA's asks for the device too.
int64_t native_choice(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  if (!native.cuda) {
    return at::native::_fused_sdp_choice_cpp(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
  }
  const bool masked = attn_mask.has_value() && attn_mask->defined();
  return at::_ops::_fused_sdp_choice::redispatch(
      native.keys,
      shown_with_gradient(query),
      shown_with_gradient(key),
      shown_with_gradient(value),
      masked ? std::optional<at::Tensor>(shown_with_gradient(*attn_mask)) : std::nullopt,
      dropout_p,
      is_causal,
      scale,
      enable_gqa);
}

// The choice already made for the call in progress on this thread, so that torch does not ask twice; -1 if none.
thread_local int64_t choice_made = -1;

// What torch's composite calls for tensors of this device.
int64_t choice_for_composite(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  if (const int64_t made = std::exchange(choice_made, -1); made >= 0) {
    return made;
  }
  return native_choice(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
}

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
  return native_choice(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested();
}

// CUDA's flash kernels want rows of a multiple of 8 elements; zeros change no product.
at::Tensor padded(const at::Tensor& tensor) {
  const c10::SymInt last = tensor.sym_size(-1);
  const c10::SymInt missing = (8 - last % 8) % 8;
  return missing == 0 ? tensor : at::pad_symint(tensor, {c10::SymInt(0), missing});
}

at::Tensor flash_attention_on_cuda(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
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

// For device types it does not know torch takes the math decomposition, which is slower and rounds differently.
// This takes what the native device takes; whatever is wrong with the arguments is left to torch to say.
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
  const int64_t choice =
      well_formed ? native_choice(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa) : -1;
  if (choice != kFlash) {
    choice_made = choice;
    return at::native::scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
  }
  if (native.cuda) {
    return flash_attention_on_cuda(query, key, value, dropout_p, is_causal, scale);
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

  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choice_for_composite);
  choice_slot = op_slot("aten::_fused_sdp_choice");
  library.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
  registered.emplace_back("aten::_fused_sdp_choice");
}

} // namespace flagos
