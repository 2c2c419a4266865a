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

void register_hot_gradients(torch::Library& library, std::vector<std::string>& registered) {
  FLAGOS_HOT(_softmax_backward_data, "_softmax_backward_data");
  FLAGOS_HOT(_log_softmax_backward_data, "_log_softmax_backward_data");
  FLAGOS_HOT(native_layer_norm_backward, "native_layer_norm_backward");
  FLAGOS_HOT(_fused_rms_norm_backward, "_fused_rms_norm_backward");
  FLAGOS_HOT(gelu_backward, "gelu_backward");
  FLAGOS_HOT(silu_backward, "silu_backward");
  FLAGOS_HOT(slice_backward, "slice_backward");
  FLAGOS_HOT(sigmoid_backward, "sigmoid_backward");
  FLAGOS_HOT(tanh_backward, "tanh_backward");
  FLAGOS_HOT(threshold_backward, "threshold_backward");
  FLAGOS_HOT(embedding_dense_backward, "embedding_dense_backward");
  FLAGOS_HOT(nll_loss_forward, "nll_loss_forward");
  FLAGOS_HOT(nll_loss_backward, "nll_loss_backward");
  FLAGOS_HOT(convolution_backward, "convolution_backward");
  FLAGOS_HOT(_scaled_dot_product_cudnn_attention_backward, "_scaled_dot_product_cudnn_attention_backward");
  FLAGOS_HOT(_scaled_dot_product_efficient_attention_backward, "_scaled_dot_product_efficient_attention_backward");
  FLAGOS_HOT(_scaled_dot_product_flash_attention_backward, "_scaled_dot_product_flash_attention_backward");
  FLAGOS_HOT(
      _scaled_dot_product_flash_attention_for_cpu_backward, "_scaled_dot_product_flash_attention_for_cpu_backward");
}

} // namespace flagos
