// SPDX-License-Identifier: Apache-2.0
// The flagos core's C table, and its failures as torch's exceptions.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>

#include "flagos.h"

namespace flagos {

constexpr c10::DeviceType kFlagos = c10::DeviceType::PrivateUse1;

// The core's table; `register_all` sets it once, for the life of the process.
extern const FlagosApi* core;

// Throws torch's exception for a status of the core, with the core's last message: OutOfMemoryError, ValueError,
// NotImplementedError or RuntimeError.
[[noreturn]] void raise(int32_t status);

// The same with another message.
[[noreturn]] void raise(int32_t status, const std::string& message);

inline void check(int32_t status) {
  if (C10_UNLIKELY(status != FLAGOS_OK)) {
    raise(status);
  }
}

} // namespace flagos
