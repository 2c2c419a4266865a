// SPDX-License-Identifier: Apache-2.0
// The memory that a flagos storage owns: its twin's, or, where the host cannot touch device memory, its own.
#pragma once

#include "following/memory.h"
#include "runtime/native.h"
#include "runtime/pool_memory.h"
#include "runtime/twin.h"

namespace flagos::following {

// What the owner of a flagos storage's memory has of the pool or of a plan; null for memory that came from outside.
inline const c10::DataPtr* owned_memory(const c10::DataPtr& memory) {
  if (C10_LIKELY(!native->by_copies)) {
    const c10::StorageImpl* twin = twin_of(memory);
    return twin != nullptr ? &twin->data_ptr() : nullptr;
  }
  return is_from_pool(memory) || block_of(memory) != nullptr ? &memory : nullptr;
}

// The storage that has it: the twin, or the flagos storage itself.
inline c10::StorageImpl* owner_of(c10::StorageImpl* storage) {
  if (C10_LIKELY(!native->by_copies)) {
    return twin_of(storage->data_ptr());
  }
  return owned_memory(storage->data_ptr()) != nullptr ? storage : nullptr;
}

// The label of memory from plans.
inline c10::Device label_of(c10::DeviceIndex device) {
  return native->by_copies ? c10::Device(kFlagos, device) : native_device(device);
}

} // namespace flagos::following
