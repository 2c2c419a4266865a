// SPDX-License-Identifier: Apache-2.0
#include "aten/register.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/zeros.h>

#include "aten/route.h"

namespace flagos {

namespace {

constexpr const char* kName = "aten::dropout";
FlagosOpSlot* dropout_slot;
FlagosOpSlot* fused_slot;

// The arithmetic of the CPU (aten/src/ATen/native/Dropout.cpp): 1 / (1 - p) is divided in the tensor's type, while the
// fused kernel divides in double precision, which differs in the last bit for some p.
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  enter_op(dropout_slot, kName);
  const bool fused_is_routed = __atomic_load_n(&fused_slot->route, __ATOMIC_RELAXED) != 0;
  if (train && fused_is_routed) {
    return std::get<0>(at::native_dropout(input, p, train));
  }
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.numel() == 0) {
    return input;
  }
  if (p == 1) {
    return input.mul(at::zeros({}, input.options()));
  }
  return input.mul(at::empty_like(input).bernoulli_(1 - p).div_(1 - p));
}

} // namespace

void register_dropout(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered) {
  dropout_slot = op_slot(kName);
  fused_slot = op_slot("aten::native_dropout");
  // A composite: below autograd in inference mode, above it otherwise.
  library.impl("dropout", TORCH_FN(dropout));
  autograd.impl("dropout", TORCH_FN(dropout));
  registered.emplace_back(kName);
}

} // namespace flagos
