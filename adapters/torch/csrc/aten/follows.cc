// SPDX-License-Identifier: Apache-2.0
#include "aten/follows.h"

#include <algorithm>

#include "aten/boxed.h"
#include "aten/never_followed.h"
#include "following/operator.h"

namespace flagos {

std::pair<bool, std::string> follows(const std::string& name) {
  const std::optional<c10::OperatorHandle> op = find_operator(name);
  if (!op.has_value()) {
    return {false, "operators of others"};
  }
  if (const following::Operator* seen = following::Operators::instance().find(name)) {
    if (seen->why_native != nullptr) {
      return {false, seen->why_native};
    }
    return {true, seen->dropout.has_value() ? "where nothing is dropped" : ""};
  }
  if (!op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
    return {false, "torch makes it of other operators, which are followed or not by themselves"};
  }
  const auto& results = op->schema().returns();
  if (std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
        return result.alias_info() != nullptr && !result.alias_info()->isWrite();
      })) {
    return {false, "views, for which nothing is launched"};
  }
  const char* why = why_never_followed(*op);
  return {false, why != nullptr ? why : "a kernel of the device's own, which calls others"};
}

} // namespace flagos
