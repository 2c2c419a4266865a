// SPDX-License-Identifier: Apache-2.0
#include "typed.h"

namespace flagos {

at::Tensor typed_result(const TypedCall& call, at::Tensor native) {
  if (!native.defined() || native.device().type() != flagos::native.type) {
    return native; // CUDA kernels return counts and seeds on the CPU
  }
  const c10::StorageImpl* storage = native.storage().unsafeGetStorageImpl();
  for (const auto& binding : call.bindings) {
    if (binding.alias == native.unsafeGetTensorImpl()) {
      return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(binding.original));
    }
    if (binding.alias->unsafe_storage().unsafeGetStorageImpl() == storage) {
      return view_of(native, binding.original->unsafe_storage());
    }
  }
  return wrap_dense(std::move(native), call.device);
}

} // namespace flagos
