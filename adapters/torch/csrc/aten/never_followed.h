// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace flagos {

// Why automatic graphs follow no call of an operator; null if they follow some.
const char* why_never_followed(const c10::OperatorHandle& op);

} // namespace flagos
