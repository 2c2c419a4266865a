// SPDX-License-Identifier: Apache-2.0
// Captures torch's CUDA kernels for automatic graphs.
#pragma once

#include <c10/core/Allocator.h>

#include <string>

#include "runtime/capture.h"

namespace flagos {

// One for the process. Throws NotImplementedError where the vendor's runtime cannot capture.
Capturer* cuda_capturer(const std::string& vendor);

// A block of the device's memory for the current stream.
c10::DataPtr allocate_block(size_t nbytes, c10::DeviceIndex device);

// Copies device memory on the current stream of `device`.
void copy_device_bytes(const std::string& vendor, void* to, const void* from, size_t nbytes, c10::DeviceIndex device);

} // namespace flagos
