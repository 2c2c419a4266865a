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

void register_hot_linear(torch::Library& library, std::vector<std::string>& registered) {
  FLAGOS_HOT(mm, "mm");
  FLAGOS_HOT(addmm, "addmm");
  FLAGOS_HOT(bmm, "bmm");
  FLAGOS_HOT(baddbmm, "baddbmm");
  FLAGOS_HOT(mm_out, "mm.out");
  FLAGOS_HOT(addmm_out, "addmm.out");
  FLAGOS_HOT(convolution, "convolution");
  FLAGOS_HOT(_scaled_dot_product_flash_attention_for_cpu, "_scaled_dot_product_flash_attention_for_cpu");
  FLAGOS_HOT(_scaled_dot_product_flash_attention, "_scaled_dot_product_flash_attention");
  FLAGOS_HOT(_scaled_dot_product_efficient_attention, "_scaled_dot_product_efficient_attention");
  FLAGOS_HOT(_scaled_dot_product_cudnn_attention, "_scaled_dot_product_cudnn_attention");
}

} // namespace flagos
