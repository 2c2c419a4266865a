// SPDX-License-Identifier: Apache-2.0
// The way of serving of vendors whose memory is the host's.
#pragma once

#include <memory>
#include <string>

#include "runtime/native.h"

namespace flagos {

// torch's CPU kernels compute in the memory of the core.
std::unique_ptr<Native> host_native(std::string vendor);

} // namespace flagos
