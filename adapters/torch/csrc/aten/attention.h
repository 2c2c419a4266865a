// SPDX-License-Identifier: Apache-2.0
// Fused attention: what `scaled_dot_product_attention` needs to know about the native device.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace flagos {

// The arguments of `aten::_fused_sdp_choice`.
using ChooseAttention = int64_t(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa);

using FlashAttention = at::Tensor(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale);

struct NativeAttention {
  ChooseAttention* choose; // an sdp::SDPBackend
  FlashAttention* flash;
};

// The mask that the CPU's kernel adds, in the query's dtype: 0 where `shown` is true, minus infinity elsewhere.
at::Tensor added_mask(const at::Tensor& shown, const at::Tensor& query);

// The CPU's.
NativeAttention host_attention();

// The CPU's, with masks of booleans as they are: see `match_masks` of the room vendor_library.
NativeAttention library_attention();

} // namespace flagos
