// SPDX-License-Identifier: Apache-2.0
// Operators of which torch.jit.trace records what their composite calls.
#pragma once

#include <torch/csrc/jit/frontend/tracer.h>

#include <string_view>

#include "aten/register.h"

namespace flagos {

// Whether torch.jit.trace records not the operator but what its composite calls.
constexpr bool is_traced_inside(std::string_view name) {
  return name == "aten::convolution";
}

inline bool is_tracing() {
  return torch::jit::tracer::isTracing();
}

// Serves what such composites call.
void register_traced(Registrar& registrar);

} // namespace flagos
