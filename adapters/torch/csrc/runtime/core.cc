// SPDX-License-Identifier: Apache-2.0
#include "runtime/core.h"

namespace flagos {

const FlagosApi* core = nullptr;

void raise(int32_t status) {
  const char* text = core != nullptr ? core->last_error() : nullptr;
  raise(status, text != nullptr ? text : "flagos: unknown error");
}

void raise(int32_t status, const std::string& message) {
  switch (status) {
    case FLAGOS_OUT_OF_MEMORY:
      TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    case FLAGOS_CONFIG:
    case FLAGOS_INVALID_ARGUMENT:
      TORCH_CHECK_VALUE(false, message);
    case FLAGOS_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    default:
      TORCH_CHECK(false, message);
  }
  // never reached: torch's macros are not marked noreturn
  throw std::runtime_error(message);
}

} // namespace flagos
