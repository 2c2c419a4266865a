// SPDX-License-Identifier: Apache-2.0
#include "aten/register.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/zeros.h>

namespace flagos {

namespace {

FlagosOpSlot* fused_slot; // of native_dropout

// The CPU's arithmetic (aten/src/ATen/native/Dropout.cpp), which computes 1 / (1 - p) in the tensor's dtype. The fused
// kernel computes it in double precision, which differs in the last bit for some p, so it only serves where the plan
// routes it elsewhere.
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  Slot<at::_ops::dropout>::enter_without_work(); // the operators that it calls have it
  const uint32_t route = __atomic_load_n(&fused_slot->route, __ATOMIC_RELAXED);
  const bool fused_is_routed = route != FLAGOS_ROUTE_NATIVE && route != FLAGOS_ROUTE_CPU_FALLBACK;
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

void register_dropout(Registrar& registrar) {
  fused_slot = op_slot(at::_ops::native_dropout::name);
  registrar.composite<at::_ops::dropout>(TORCH_FN(dropout));
}

} // namespace flagos
