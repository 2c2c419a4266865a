// SPDX-License-Identifier: Apache-2.0
#include "aten/typed/typed.h"

namespace flagos {

inline void TypedCall::see_device(const at::Tensor& tensor) {
  const c10::Device own = tensor.unsafeGetTensorImpl()->device();
  if (C10_UNLIKELY(device_.type() == kFlagos && device_ != own)) {
    raise_mixed_devices(device_, own);
  }
  device_ = own;
}

at::Tensor& TypedCall::counted_alias(const at::Tensor& tensor) {
  if (C10_UNLIKELY(!is_flagos(tensor))) {
    return alias(tensor);
  }
  see_device(tensor);
  return aliases_.counted_of(tensor);
}

at::Tensor& TypedCall::alias_here(const at::Tensor& tensor) {
  see_device(tensor);
  return C10_UNLIKELY(tensor.unsafeGetTensorImpl() == written_) ? *written_alias_ : aliases_.read(tensor);
}

at::Tensor& TypedCall::written_here(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  Alias* seen = const_cast<Alias*>(aliases_.find([&](const Alias& alias) { return alias.original == impl; }));
  if (C10_UNLIKELY(seen != nullptr)) {
    Aliases::own(*seen);
  } else {
    see_device(tensor);
  }
  written_ = impl;
  written_alias_ = seen != nullptr ? &seen->native : &aliases_.of(tensor);
  return *written_alias_;
}

at::Tensor typed_result(const TypedCall& call, at::Tensor native) {
  if (!native.defined() || native.device().type() != flagos::native->type) {
    return native; // such as the counts and seeds that kernels of other devices return on the CPU
  }
  const c10::TensorImpl* impl = native.unsafeGetTensorImpl();
  const c10::StorageImpl* storage = native.storage().unsafeGetStorageImpl();
  const Alias* shared = call.aliases().find([&](const Alias& alias) {
    return alias.native.unsafeGetTensorImpl() == impl || alias.native.storage().unsafeGetStorageImpl() == storage;
  });
  if (shared == nullptr) {
    return wrap_dense(std::move(native), call.device());
  }
  if (shared->native.is_same(native)) {
    return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(shared->original));
  }
  return view_of(native, shared->original->unsafe_storage());
}

} // namespace flagos
