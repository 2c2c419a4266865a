// SPDX-License-Identifier: Apache-2.0
#include "attention.h"

#include <ATen/ops/_fused_sdp_choice_native.h>

#include "route.h"

namespace flagos {

namespace {

FlagosOpSlot* choice_slot = nullptr;

// The CPU's choice looks at shapes, types and switches only, so it holds for flagos tensors as they are. Without it
// torch would take the math decomposition, which is slower and rounds differently.
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

} // namespace

void register_attention(torch::Library& library, std::vector<std::string>& registered) {
  choice_slot = op_slot("aten::_fused_sdp_choice");
  library.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
  registered.emplace_back("aten::_fused_sdp_choice");
}

} // namespace flagos
