// SPDX-License-Identifier: Apache-2.0
// From flagos storages to native ones and back.
#pragma once

#include <c10/core/Storage.h>

#include "runtime/allocator.h"
#include "runtime/twin.h"

namespace flagos {

// A native storage over memory that came from outside; it keeps `flagos_storage` alive. Calls that run at the same time
// share it, since kernels compare storages to find out whether an output overlaps an input.
c10::Storage foreign_twin(const c10::Storage& flagos_storage);

// The native storage of a flagos storage.
inline c10::Storage twin_storage(const c10::Storage& flagos_storage) {
  c10::StorageImpl* impl = flagos_storage.unsafeGetStorageImpl();
  c10::StorageImpl* twin = twin_of(impl->_mutable_data_ptr_no_checks());
  if (C10_LIKELY(twin != nullptr)) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(twin));
  }
  return foreign_twin(flagos_storage);
}

// A flagos storage that owns `native` as its twin.
inline __attribute__((always_inline)) c10::Storage wrap_storage(c10::Storage native, c10::DeviceIndex device) {
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

// Gives a flagos storage the address and the size that its twin has after it was resized or moved.
void refresh_from_twin(c10::StorageImpl* flagos_storage, c10::StorageImpl* twin, c10::DeviceIndex device);

} // namespace flagos
