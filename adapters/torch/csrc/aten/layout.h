// SPDX-License-Identifier: Apache-2.0
// Aliases and results of every layout: dense, quantized, nested, sparse COO and compressed sparse.
#pragma once

#include <c10/util/FunctionRef.h>

#include "aten/alias.h"

namespace flagos {

// Finds the flagos storage of a native one during a call.
class StorageSource {
 public:
  virtual ~StorageSource() = default;
  virtual c10::Storage flagos_storage(const c10::Storage& native) = 0;
  virtual c10::DeviceIndex device() const = 0;
};

// A new alias of a flagos tensor of any layout.
at::Tensor alias_of(const at::Tensor& tensor);

// A native tensor over the bytes of `alias` that requires a gradient.
at::Tensor with_requires_grad(const at::Tensor& alias);

// The flagos tensor of a native result of any layout. Returns layouts that only the CPU has (mkldnn) unchanged.
at::Tensor wrap_result(at::Tensor native, StorageSource& source);

// The view `like`, dense or nested, of the memory of a nested tensor, with the keys of that: so it counts versions in
// inference mode, too, if `base` does.
at::Tensor view_of_nested(const at::Tensor& base, const at::Tensor& like);

// Visits the dense tensors that a tensor of any layout consists of.
void each_part(const at::Tensor& tensor, c10::function_ref<void(const c10::TensorImpl*)> visit);

// After a kernel wrote to `alias`: gives `original` everything that changed.
void sync_layout(const at::Tensor& original, const at::Tensor& alias, StorageSource& source);

} // namespace flagos
