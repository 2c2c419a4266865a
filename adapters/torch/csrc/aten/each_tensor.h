// SPDX-License-Identifier: Apache-2.0
// The tensors of an argument.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace flagos {

// Visits the tensor that a value is, or the tensors of the list that it is, also undefined ones.
template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const c10::IValue& each : value.toListRef()) {
      visit(each.toTensor());
    }
  }
}

} // namespace flagos
