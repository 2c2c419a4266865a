// SPDX-License-Identifier: Apache-2.0
#include "aten/typed/typed.h"

namespace flagos {

void register_typed_linear(Registrar& registrar) {
  register_typed<
      ops::mm,
      ops::addmm,
      ops::bmm,
      ops::baddbmm,
      ops::mm_out,
      ops::addmm_out,
      ops::convolution,
      ops::_scaled_dot_product_flash_attention_for_cpu,
      ops::_scaled_dot_product_flash_attention,
      ops::_scaled_dot_product_efficient_attention,
      ops::_scaled_dot_product_cudnn_attention>(registrar);
}

} // namespace flagos
