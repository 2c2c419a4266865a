// SPDX-License-Identifier: Apache-2.0
#include "aten/typed/typed.h"

namespace flagos {

void register_typed_gradients(Registrar& registrar) {
  register_typed<
      ops::_softmax_backward_data,
      ops::_log_softmax_backward_data,
      ops::native_layer_norm_backward,
      ops::native_group_norm_backward,
      ops::native_batch_norm_backward,
      ops::cudnn_batch_norm_backward,
      ops::native_dropout_backward,
      ops::max_pool2d_with_indices_backward,
      ops::mse_loss_backward,
      ops::_fused_rms_norm_backward,
      ops::gelu_backward,
      ops::silu_backward,
      ops::slice_backward,
      ops::sigmoid_backward,
      ops::tanh_backward,
      ops::threshold_backward,
      ops::embedding_dense_backward,
      ops::nll_loss_forward,
      ops::nll_loss_backward,
      ops::convolution_backward,
      ops::_scaled_dot_product_cudnn_attention_backward,
      ops::_scaled_dot_product_efficient_attention_backward,
      ops::_scaled_dot_product_flash_attention_backward,
      ops::_scaled_dot_product_flash_attention_for_cpu_backward>(registrar);
}

} // namespace flagos
