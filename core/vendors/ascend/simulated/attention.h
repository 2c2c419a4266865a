// SPDX-License-Identifier: Apache-2.0
// Helpers for operators that no few operators of ATen make: attention, optimizers, masks of bits.
#pragma once

#include <string>

namespace simulated_ascend {

struct Helper;
const Helper* special_helper_of(const std::string& name);

} // namespace simulated_ascend
