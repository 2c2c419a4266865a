// SPDX-License-Identifier: Apache-2.0
// Time on the host in operators of flagos tensors, for `flagos report`.
#pragma once

#include <torch/library.h>

namespace flagos {

// Defines the operators by which Python has operators timed, and reads the times.
void register_operator_times(torch::Library& library);

} // namespace flagos
