// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

namespace flagos {

// Whether automatic graphs follow calls of the operator of a qualified name whose route is native, and under which
// condition, or why not.
std::pair<bool, std::string> follows(const std::string& name);

} // namespace flagos
