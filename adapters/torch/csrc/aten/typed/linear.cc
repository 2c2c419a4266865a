// SPDX-License-Identifier: Apache-2.0
#include "aten/typed/register.h"
#include "aten/typed/typed.h"

#include <ATen/ops/_scaled_dot_product_cudnn_attention_ops.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/mm_ops.h>

namespace flagos {

void register_typed_linear(torch::Library& library, std::vector<std::string>& registered) {
  FLAGOS_TYPED(mm, "mm");
  FLAGOS_TYPED(addmm, "addmm");
  FLAGOS_TYPED(bmm, "bmm");
  FLAGOS_TYPED(baddbmm, "baddbmm");
  FLAGOS_TYPED(mm_out, "mm.out");
  FLAGOS_TYPED(addmm_out, "addmm.out");
  FLAGOS_TYPED(convolution, "convolution");
  FLAGOS_TYPED(_scaled_dot_product_flash_attention_for_cpu, "_scaled_dot_product_flash_attention_for_cpu");
  FLAGOS_TYPED(_scaled_dot_product_flash_attention, "_scaled_dot_product_flash_attention");
  FLAGOS_TYPED(_scaled_dot_product_efficient_attention, "_scaled_dot_product_efficient_attention");
  FLAGOS_TYPED(_scaled_dot_product_cudnn_attention, "_scaled_dot_product_cudnn_attention");
}

} // namespace flagos
