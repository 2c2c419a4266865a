// SPDX-License-Identifier: Apache-2.0
// From flagos storages to native ones and back.
#pragma once

#include <c10/core/Storage.h>

#include "runtime/allocator.h"
#include "runtime/mirrors.h"
#include "runtime/twin.h"

namespace flagos {

// The native storage of a tensor whose storage has no twin: its mirror, or a storage over memory that came from
// outside, which keeps the flagos storage alive. Calls that run at the same time share the latter, since kernels
// compare storages to find out whether an output overlaps an input.
c10::Storage native_storage_without_twin(const c10::TensorImpl* tensor);
c10::Storage native_storage_without_twin(const c10::Storage& storage);

// The native storage of a flagos storage, for the length of a call.
inline c10::Storage native_storage(const c10::Storage& storage) {
  c10::StorageImpl* twin = twin_of(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  if (C10_LIKELY(twin != nullptr)) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(twin));
  }
  return native_storage_without_twin(storage);
}

// That of a flagos tensor.
inline c10::Storage native_storage(const c10::TensorImpl* tensor) {
  c10::StorageImpl* twin = twin_of(tensor->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  if (C10_LIKELY(twin != nullptr)) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(twin));
  }
  return native_storage_without_twin(tensor);
}

// Whether `native` is the native storage of this flagos storage. A kernel may have given an alias another one.
inline bool is_native_storage(const c10::StorageImpl* native, const c10::StorageImpl* storage) {
  return twin_of(storage->data_ptr()) == native || native->data_ptr().get_context() == storage ||
      (flagos::native->by_copies && Mirrors::current() != nullptr &&
       Mirrors::current()->original(native).unsafeGetStorageImpl() == storage);
}

// The flagos storage of a new native one, which becomes its twin or is uploaded.
inline __attribute__((always_inline)) c10::Storage wrap_storage(c10::Storage native, c10::DeviceIndex device) {
  if (C10_UNLIKELY(flagos::native->by_copies)) {
    return upload(std::move(native), device);
  }
  c10::StorageImpl* impl = native.unsafeGetStorageImpl();
  // Materializes copy-on-write memory, whose address would change at the first write.
  impl->mutable_data_ptr();
  const auto nbytes = static_cast<int64_t>(impl->nbytes());
  const bool resizable = impl->resizable();
  return c10::Storage(
      c10::Storage::use_byte_size_t{},
      nbytes,
      twin_data_ptr(c10::intrusive_ptr<c10::StorageImpl>::reclaim(native.unsafeReleaseStorageImpl()), device),
      device_allocator(),
      resizable);
}

// The twin of a storage that may be resized.
c10::StorageImpl* resizable_twin(c10::StorageImpl* storage);

// Gives a flagos storage and its twin other memory.
void give_twin(c10::StorageImpl* storage, c10::StorageImpl* twin, c10::DataPtr data, size_t nbytes);

// Gives a flagos storage the address and the size that its twin has after it was resized or moved.
void refresh_from_twin(c10::StorageImpl* flagos_storage, c10::StorageImpl* twin, c10::DeviceIndex device);

} // namespace flagos
