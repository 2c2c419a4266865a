// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/native/DispatchStub.h>

#include "aten/register.h"

namespace at::native {

// torch installs no header that declares it (ATen/native/sparse/FlattenIndicesCommon.h).
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)

} // namespace at::native

namespace flagos {

namespace {

// int64[d, n] indices into `size` as int64[n] indices into its elements, row by row.
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef size) {
  at::Tensor flat = indices.select(0, 0);
  for (int64_t d = 1; d < indices.size(0); ++d) {
    flat = flat.mul(size[d]).add_(indices.select(0, d));
  }
  return flat;
}

} // namespace

void register_sparse() {
  // By it torch checks that indices are coalesced. It is chosen by the indices' device without the dispatcher.
  at::native::flatten_indices_stub.set_privateuse1_dispatch_ptr(&flatten_indices);
}

} // namespace flagos
