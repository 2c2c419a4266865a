// SPDX-License-Identifier: Apache-2.0
#include "aten/attention.h"

#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <utility>

#include "aten/register.h"

namespace flagos {

namespace {

NativeAttention native_attention;

// The choice already made for the call in progress on this thread, so that torch does not choose twice; -1 if none.
thread_local int64_t choice_made = -1;

// torch's composite calls this for flagos tensors.
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
  return native_attention.choose(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
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
  Slot<at::_ops::_fused_sdp_choice>::enter();
  return native_attention.choose(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested();
}

// For a device type that torch does not know its composite takes the math decomposition, which is slower and rounds
// differently. This one takes the kernel that the native device would take. Errors in the arguments are torch's to
// tell.
at::Tensor scaled_dot_product_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  Slot<at::_ops::scaled_dot_product_attention>::enter();
  const bool masked = attn_mask.has_value() && attn_mask->defined();
  const bool well_formed = is_plain(query) && is_plain(key) && is_plain(value) && query.dtype() == key.dtype() &&
      query.dtype() == value.dtype() && query.device() == key.device() && query.device() == value.device() &&
      query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && !(masked && is_causal) &&
      (!masked ||
       (attn_mask->device() == query.device() &&
        (attn_mask->scalar_type() == at::kBool || attn_mask->dtype() == query.dtype())));
  constexpr int64_t kFlash = 1; // sdp::SDPBackend::flash_attention
  const int64_t choice =
      well_formed ? native_attention.choose(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa) : -1;
  if (choice == kFlash) {
    return native_attention.flash(query, key, value, attn_mask, dropout_p, is_causal, scale);
  }
  choice_made = choice;
  return at::native::scaled_dot_product_attention(
      query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
}

// A mask of booleans as it is: a vendor's library hides by it.
at::Tensor flash_attention_by_library(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale) {
  return std::get<0>(
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_mask, scale));
}

at::Tensor flash_attention_on_cpu(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale) {
  std::optional<at::Tensor> mask = attn_mask;
  if (mask.has_value() && mask->defined() && mask->scalar_type() == at::kBool) {
    mask = added_mask(*mask, query);
  }
  return flash_attention_by_library(query, key, value, mask, dropout_p, is_causal, scale);
}

} // namespace

at::Tensor added_mask(const at::Tensor& shown, const at::Tensor& query) {
  return at::zeros_like(shown, query.options())
      .masked_fill_(shown.logical_not(), -std::numeric_limits<double>::infinity());
}

NativeAttention library_attention() {
  return {&at::native::_fused_sdp_choice_cpp, &flash_attention_by_library};
}

NativeAttention host_attention() {
  // The CPU's choice looks at shapes, dtypes and switches only, so it takes flagos tensors as they are.
  return {&at::native::_fused_sdp_choice_cpp, &flash_attention_on_cpu};
}

void register_attention(Registrar& registrar, const NativeAttention& native) {
  native_attention = native;
  registrar.composite<at::_ops::scaled_dot_product_attention>(TORCH_FN(scaled_dot_product_attention));
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choice_for_composite);
  registrar.kernel<at::_ops::_fused_sdp_choice>(TORCH_FN(fused_sdp_choice));
}

} // namespace flagos
