// SPDX-License-Identifier: Apache-2.0
// The way back to the CPU, for operators that the plan sends there although the device is not the host's.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace flagos {

// Runs `op` on copies of its arguments on the CPU, copies back what it wrote, and moves its results to flagos.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace flagos
