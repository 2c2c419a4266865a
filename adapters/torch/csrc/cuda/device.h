// SPDX-License-Identifier: Apache-2.0
// Memory, streams and events of the cuda vendor: torch's own CUDA ones, reached through torch's virtual interfaces so
// that this library needs no libtorch_cuda, and named as flagos ones.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace flagos {

c10::DeviceAllocator* cuda_backed_allocator();
at::HostAllocator* cuda_backed_pinned_allocator();
const c10::impl::DeviceGuardImplInterface* cuda_backed_guard();

} // namespace flagos
