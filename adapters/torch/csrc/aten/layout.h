// SPDX-License-Identifier: Apache-2.0
// Aliasing and wrapping for every tensor layout: dense, quantized, nested, sparse COO and compressed sparse.
#pragma once

#include "aten/twin.h"

namespace flagos {

// Knows which flagos storage belongs to a native one during a call.
class StorageSource {
 public:
  virtual ~StorageSource() = default;
  virtual c10::Storage flagos_storage(const c10::Storage& native) = 0;
  virtual c10::DeviceIndex device() const = 0;
};

// The native twin of a flagos tensor of any layout.
at::Tensor alias_of(const at::Tensor& tensor);

// `alias`, or another one over the same bytes, that says it requires a gradient.
at::Tensor with_requires_grad(const at::Tensor& alias);

// The flagos tensor of a native result of any layout; layouts that only the CPU has (mkldnn) are returned as they are.
at::Tensor wrap_result(at::Tensor native, StorageSource& source);

// After a kernel mutated `alias`: gives `original` what changed.
void sync_layout(const at::Tensor& original, const at::Tensor& alias, StorageSource& source);

} // namespace flagos
