// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <utility>

namespace flagos {

// Why automatic graphs follow no call of an operator; null if they follow some.
const char* why_never_followed(const c10::OperatorHandle& op);

// Whether they follow calls of the operator of a qualified name whose route is native, and under which condition, or
// why not.
std::pair<bool, std::string> follows(const std::string& name);

} // namespace flagos
