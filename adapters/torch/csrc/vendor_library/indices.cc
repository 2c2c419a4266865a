// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/indices.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include "aten/alias.h"

namespace flagos {

namespace {

using Indices = c10::List<std::optional<at::Tensor>>;

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

// Whether a mask has the sizes of the dimensions of `self` from `dim` on.
bool fits(const at::Tensor& mask, const at::Tensor& self, int64_t dim) {
  for (int64_t i = 0; i < mask.dim(); ++i) {
    if (dim + i >= self.dim() || mask.size(i) != self.size(dim + i)) {
      return false;
    }
  }
  return mask.dim() != 0;
}

// Whether an index is a mask or on the host, and torch refuses none.
bool need_preparation(const Indices& indices, const at::Tensor& self) {
  bool any = false;
  int64_t dim = 0;
  for (const std::optional<at::Tensor> index : indices) {
    if (!index.has_value() || !index->defined()) {
      ++dim;
      continue;
    }
    any = any || index->is_cpu() || is_mask(*index);
    if (!index->is_cpu() && index->device() != self.device()) {
      return false;
    }
    if (!is_mask(*index)) {
      ++dim;
      continue;
    }
    if (!fits(*index, self, dim)) {
      return false;
    }
    dim += index->dim();
  }
  return any;
}

} // namespace

void prepare_indices(torch::jit::Stack& stack, size_t first) {
  const at::Tensor& self = stack[first].toTensor();
  c10::IValue& indices = stack[first + 1];
  if (!indices.isOptionalTensorList() || !is_flagos(self)) {
    return;
  }
  const Indices given = indices.toOptionalTensorList();
  if (!need_preparation(given, self)) {
    return;
  }
  Indices places;
  for (const std::optional<at::Tensor> index : given) {
    if (!index.has_value() || !index->defined()) {
      places.push_back(index);
    } else if (!is_mask(*index)) {
      places.push_back(index->to(self.device()));
    } else {
      for (const at::Tensor& column : index->nonzero().unbind(1)) {
        places.push_back(column.to(self.device()));
      }
    }
  }
  indices = std::move(places);
}

} // namespace flagos
