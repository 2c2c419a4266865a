// SPDX-License-Identifier: Apache-2.0
// The flagos core as the shim sees it: the C table, and its failures turned into torch's exceptions.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "flagos.h"

namespace flagos {

constexpr c10::DeviceType kFlagos = c10::DeviceType::PrivateUse1;

// The core's table; set once by `register_all`, valid for the life of the process.
extern const FlagosApi* core;

// Throws what the core's status means in torch: OutOfMemoryError, ValueError, NotImplementedError or RuntimeError.
[[noreturn]] void raise(int32_t status);

inline void check(int32_t status) {
  if (C10_UNLIKELY(status != FLAGOS_OK)) {
    raise(status);
  }
}

// Throws unless `index` names a device; -1 is not accepted.
void check_device_index(int64_t index);

} // namespace flagos
