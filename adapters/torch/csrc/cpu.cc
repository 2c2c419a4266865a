// SPDX-License-Identifier: Apache-2.0
#include "cpu.h"

#include <ATen/native/CPUFallback.h>

namespace flagos {

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

} // namespace flagos
