// SPDX-License-Identifier: Apache-2.0
#include "runtime/core.h"

#include <string>

#include "runtime/native.h"

namespace flagos {

const FlagosApi* core = nullptr;

void raise(int32_t status) {
  const char* text = core != nullptr ? core->last_error() : nullptr;
  const std::string message = text != nullptr ? text : "flagos: unknown error";
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
  // TORCH_CHECK's macros are not marked noreturn.
  throw std::runtime_error(message);
}

void check_device_index(int64_t index) {
  const int32_t count = device_count();
  TORCH_CHECK(
      index >= 0 && index < count,
      "flagos: invalid device ordinal ",
      index,
      count > 0 ? "; valid are flagos:0" : "; no flagos device is available (see `flagos doctor`)",
      count > 1 ? " to flagos:" + std::to_string(count - 1) : std::string());
}

} // namespace flagos
