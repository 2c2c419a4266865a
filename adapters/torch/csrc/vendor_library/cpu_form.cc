// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/cpu_form.h"

#include <ATen/core/Tensor.h>

#include "aten/attention.h"

namespace flagos {

CpuForm::CpuForm(const c10::OperatorHandle& op) : num_arguments_(op.schema().arguments().size()) {
  const Particulars& particulars = particulars_of(c10::toString(op.operator_name()));
  statistics_ = places_of(particulars.statistics, op.schema());
  deciding_ = places_of(particulars.deciding, op.schema());
  adds_mask_ = particulars.has(kTakesAddedMask);
  if (adds_mask_) {
    mask_ = place_of("attn_mask", op.schema());
    query_ = place_of("query", op.schema());
  }
}

void CpuForm::match_statistics(torch::jit::Stack* arguments) const {
  const auto argument = [&](size_t place) -> c10::IValue& {
    return torch::jit::peek(*arguments, place, num_arguments_);
  };
  for (const size_t decides : deciding_) {
    if (!argument(decides).isTensor() || !argument(decides).toTensor().defined()) {
      continue;
    }
    const c10::ScalarType dtype = argument(decides).toTensor().scalar_type();
    for (const size_t place : statistics_) {
      if (argument(place).isTensor() && argument(place).toTensor().defined()) {
        argument(place) = argument(place).toTensor().to(dtype);
      }
    }
    return;
  }
}

void CpuForm::match_mask(torch::jit::Stack* arguments) const {
  c10::IValue& mask = torch::jit::peek(*arguments, mask_, num_arguments_);
  if (!mask.isTensor() || !mask.toTensor().defined() || mask.toTensor().scalar_type() != at::kBool) {
    return;
  }
  mask = added_mask(mask.toTensor(), torch::jit::peek(*arguments, query_, num_arguments_).toTensor());
}

} // namespace flagos
