// SPDX-License-Identifier: Apache-2.0
// Automatic graphs where the core owns the streams: it captures them.
#pragma once

#include "runtime/capture.h"

namespace flagos {

Capturer* library_capturer();

} // namespace flagos
