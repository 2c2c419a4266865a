// SPDX-License-Identifier: Apache-2.0
// Operators of which torch.jit.trace records what their composite calls.
#pragma once

#include <torch/csrc/jit/frontend/tracer.h>

#include "aten/register.h"

namespace flagos {

inline bool is_tracing() {
  return torch::jit::tracer::isTracing();
}

// Serves what composites with the trait `kTracedInside` call.
void register_traced(Registrar& registrar);

} // namespace flagos
