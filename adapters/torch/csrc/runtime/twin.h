// SPDX-License-Identifier: Apache-2.0
// The twin of a flagos storage: a native storage over the same bytes, on which torch's own kernels run.
//
// The DataPtr of a flagos storage owns the twin through its context. Memory that came from outside (from_blob, DLPack)
// has no twin of its own.
#pragma once

#include <c10/core/StorageImpl.h>

#include "runtime/births.h"
#include "runtime/core.h"
#include "runtime/pending.h"

namespace flagos {

inline void note_birth(const void* address) {
  if (C10_UNLIKELY(are_graphs_wanted())) {
    Births::instance().note(address);
  }
}

// The deleter of every flagos DataPtr that has a twin: drops the reference on the twin.
inline void release_twin(void* twin) {
  if (C10_UNLIKELY(__atomic_load_n(&calls_pending, __ATOMIC_ACQUIRE))) {
    release_when_launched(static_cast<c10::StorageImpl*>(twin));
    return;
  }
  c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(twin));
}

// A flagos DataPtr that owns the twin `native`.
inline c10::DataPtr twin_data_ptr(c10::intrusive_ptr<c10::StorageImpl> native, c10::DeviceIndex device) {
  void* data = const_cast<void*>(native->data());
  note_birth(data);
  return {data, native.release(), &release_twin, c10::Device(kFlagos, device)};
}

// The twin that a flagos DataPtr owns, borrowed; null for memory that came from outside.
inline c10::StorageImpl* twin_of(const c10::DataPtr& flagos_data) {
  return flagos_data.get_deleter() == &release_twin ? static_cast<c10::StorageImpl*>(flagos_data.get_context())
                                                    : nullptr;
}

} // namespace flagos
