// SPDX-License-Identifier: Apache-2.0
// The allocations of torch's CUDA kernels, which ask torch's own allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace flagos {

// Looked up at each use, because a program may replace it.
c10::DeviceAllocator* cuda_allocator();

// From now on the plan of automatic graphs (`planned_memory`) is asked first, and graphs give their memory back before
// an allocation fails. Once for each allocator that torch has had.
void plan_allocations();

} // namespace flagos
