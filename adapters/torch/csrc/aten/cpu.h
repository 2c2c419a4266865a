// SPDX-License-Identifier: Apache-2.0
// Runs operators on the CPU where the plan routes them there and the device's memory is not the host's.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace flagos {

// Runs `op` on copies of its arguments on the CPU, copies back the written ones, and moves the results to flagos.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace flagos
