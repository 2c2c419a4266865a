// SPDX-License-Identifier: Apache-2.0
// What was done wrong, kept for tests and appended to the file that SIMULATED_ASCEND_REPORT names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulated_ascend.h"

namespace simulated_ascend {

// Under the lock. A code says that the vendor's library refuses the call; 0 that it would not have noticed.
void record_misuse(const std::string& function, int code, const std::string& what);
// Under the lock: one more call of this function, and which it is.
uint64_t count_call(const char* function);
// Under the lock: what other simulated libraries count.
const std::vector<simulated_ascend_part>& joined_parts();

} // namespace simulated_ascend
