// SPDX-License-Identifier: Apache-2.0
#include "aten/typed/register.h"
#include "aten/typed/typed.h"

#include <ATen/ops/_fused_rms_norm_backward_ops.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/slice_backward_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_ops.h>

namespace flagos {

void register_typed_gradients(torch::Library& library, std::vector<std::string>& registered) {
  FLAGOS_TYPED(_softmax_backward_data, "_softmax_backward_data");
  FLAGOS_TYPED(_log_softmax_backward_data, "_log_softmax_backward_data");
  FLAGOS_TYPED(native_layer_norm_backward, "native_layer_norm_backward");
  FLAGOS_TYPED(_fused_rms_norm_backward, "_fused_rms_norm_backward");
  FLAGOS_TYPED(gelu_backward, "gelu_backward");
  FLAGOS_TYPED(silu_backward, "silu_backward");
  FLAGOS_TYPED(slice_backward, "slice_backward");
  FLAGOS_TYPED(sigmoid_backward, "sigmoid_backward");
  FLAGOS_TYPED(tanh_backward, "tanh_backward");
  FLAGOS_TYPED(threshold_backward, "threshold_backward");
  FLAGOS_TYPED(embedding_dense_backward, "embedding_dense_backward");
  FLAGOS_TYPED(nll_loss_forward, "nll_loss_forward");
  FLAGOS_TYPED(nll_loss_backward, "nll_loss_backward");
  FLAGOS_TYPED(convolution_backward, "convolution_backward");
  FLAGOS_TYPED(_scaled_dot_product_cudnn_attention_backward, "_scaled_dot_product_cudnn_attention_backward");
  FLAGOS_TYPED(_scaled_dot_product_efficient_attention_backward, "_scaled_dot_product_efficient_attention_backward");
  FLAGOS_TYPED(_scaled_dot_product_flash_attention_backward, "_scaled_dot_product_flash_attention_backward");
  FLAGOS_TYPED(
      _scaled_dot_product_flash_attention_for_cpu_backward, "_scaled_dot_product_flash_attention_for_cpu_backward");
}

} // namespace flagos
