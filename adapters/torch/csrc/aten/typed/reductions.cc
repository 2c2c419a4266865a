// SPDX-License-Identifier: Apache-2.0
#include "aten/typed/typed.h"

namespace flagos {

void register_typed_reductions(Registrar& registrar) {
  register_typed<
      ops::sum_dim_IntList,
      ops::sum,
      ops::mean_dim,
      ops::mean,
      ops::_softmax,
      ops::_log_softmax,
      ops::native_layer_norm,
      ops::argmax,
      ops::any,
      ops::all,
      ops::amax,
      ops::max_dim,
      ops::cumsum,
      ops::cat,
      ops::index_select,
      ops::index_Tensor,
      ops::_fused_rms_norm,
      ops::gather,
      ops::embedding,
      ops::topk,
      ops::sort,
      ops::native_group_norm,
      ops::native_batch_norm,
      ops::cudnn_batch_norm,
      ops::native_dropout,
      ops::max_pool2d_with_indices,
      ops::mse_loss,
      ops::linalg_vector_norm,
      ops::stack,
      ops::clone,
      ops::_local_scalar_dense>(registrar);
}

} // namespace flagos
