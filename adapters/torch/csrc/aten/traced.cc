// SPDX-License-Identifier: Apache-2.0
#include "aten/traced.h"

#include <ATen/ops/convolution_ops.h>

namespace flagos {

namespace {

// What torch.jit.trace records of a convolution. torch has no derivative of it: on its own devices it calls operators
// that have one, and here `convolution` has.
at::Tensor traced_convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    bool /*benchmark*/,
    bool /*deterministic*/,
    bool /*cudnn_enabled*/,
    bool /*allow_tf32*/) {
  return at::_ops::convolution::call(
      input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
}

} // namespace

void register_traced(Registrar& registrar) {
  registrar.autograd().impl("_convolution", TORCH_FN(traced_convolution));
}

} // namespace flagos
