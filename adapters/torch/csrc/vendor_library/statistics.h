// SPDX-License-Identifier: Apache-2.0
// Arguments that the CPU's kernels want in another form than a device's: statistics that a normalization's kernel hands
// to its backward kernel, where one computes on the device and the other on the CPU, and masks.
#pragma once

#include <ATen/core/stack.h>

#include <string>

namespace flagos {

// Gives the statistics among the arguments of a normalization's backward kernel the dtype that the CPU's kernel has for
// them: that of the weights, or of the input without weights. Devices keep them in float32, as torch's meta kernels do.
// Does nothing for other operators.
void match_statistics(const std::string& op, torch::jit::Stack* arguments);

// Gives fused attention a mask that is added, 0 and minus infinity, for one of booleans. Does nothing for others.
void match_masks(const std::string& op, torch::jit::Stack* arguments);

} // namespace flagos
