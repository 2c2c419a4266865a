// SPDX-License-Identifier: Apache-2.0
// The way of serving of vendors whose memory is the host's.
#pragma once

#include <memory>
#include <string>

#include "aten/registrar.h"
#include "runtime/native.h"

namespace flagos {

// torch's CPU kernels compute in the memory of the core.
std::unique_ptr<Native> host_native(std::string vendor);

void register_group_norm(Registrar& registrar);

} // namespace flagos
