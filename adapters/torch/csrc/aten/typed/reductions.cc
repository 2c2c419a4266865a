// SPDX-License-Identifier: Apache-2.0
#include "aten/typed/register.h"
#include "aten/typed/typed.h"

#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/topk_ops.h>

namespace flagos {

void register_typed_reductions(torch::Library& library, std::vector<std::string>& registered) {
  FLAGOS_TYPED(sum_dim_IntList, "sum.dim_IntList");
  FLAGOS_TYPED(sum, "sum");
  FLAGOS_TYPED(mean_dim, "mean.dim");
  FLAGOS_TYPED(mean, "mean");
  FLAGOS_TYPED(_softmax, "_softmax");
  FLAGOS_TYPED(_log_softmax, "_log_softmax");
  FLAGOS_TYPED(native_layer_norm, "native_layer_norm");
  FLAGOS_TYPED(argmax, "argmax");
  FLAGOS_TYPED(any, "any");
  FLAGOS_TYPED(all, "all");
  FLAGOS_TYPED(amax, "amax");
  FLAGOS_TYPED(max_dim, "max.dim");
  FLAGOS_TYPED(cumsum, "cumsum");
  FLAGOS_TYPED(cat, "cat");
  FLAGOS_TYPED(index_select, "index_select");
  FLAGOS_TYPED(index_Tensor, "index.Tensor");
  FLAGOS_TYPED(_fused_rms_norm, "_fused_rms_norm");
  FLAGOS_TYPED(gather, "gather");
  FLAGOS_TYPED(embedding, "embedding");
  FLAGOS_TYPED(topk, "topk");
  FLAGOS_TYPED(sort, "sort");
  FLAGOS_TYPED(native_group_norm, "native_group_norm");
  FLAGOS_TYPED(native_batch_norm, "native_batch_norm");
  FLAGOS_TYPED(clone, "clone");
  FLAGOS_TYPED(_local_scalar_dense, "_local_scalar_dense");
}

} // namespace flagos
