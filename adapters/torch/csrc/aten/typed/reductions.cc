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

void register_hot_reductions(torch::Library& library, std::vector<std::string>& registered) {
  FLAGOS_HOT(sum_dim_IntList, "sum.dim_IntList");
  FLAGOS_HOT(sum, "sum");
  FLAGOS_HOT(mean_dim, "mean.dim");
  FLAGOS_HOT(mean, "mean");
  FLAGOS_HOT(_softmax, "_softmax");
  FLAGOS_HOT(_log_softmax, "_log_softmax");
  FLAGOS_HOT(native_layer_norm, "native_layer_norm");
  FLAGOS_HOT(argmax, "argmax");
  FLAGOS_HOT(any, "any");
  FLAGOS_HOT(all, "all");
  FLAGOS_HOT(amax, "amax");
  FLAGOS_HOT(max_dim, "max.dim");
  FLAGOS_HOT(cumsum, "cumsum");
  FLAGOS_HOT(cat, "cat");
  FLAGOS_HOT(index_select, "index_select");
  FLAGOS_HOT(index_Tensor, "index.Tensor");
  FLAGOS_HOT(_fused_rms_norm, "_fused_rms_norm");
  FLAGOS_HOT(gather, "gather");
  FLAGOS_HOT(embedding, "embedding");
  FLAGOS_HOT(topk, "topk");
  FLAGOS_HOT(sort, "sort");
  FLAGOS_HOT(native_group_norm, "native_group_norm");
  FLAGOS_HOT(native_batch_norm, "native_batch_norm");
  FLAGOS_HOT(clone, "clone");
  FLAGOS_HOT(_local_scalar_dense, "_local_scalar_dense");
}

} // namespace flagos
