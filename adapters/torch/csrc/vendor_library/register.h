// SPDX-License-Identifier: Apache-2.0
// The way of serving of vendors whose devices the host cannot touch: memory and streams of the core, kernels of the
// vendor's library, and torch's CPU kernels on copies for all that the library does not serve.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>

#include "aten/registrar.h"
#include "runtime/native.h"
#include "vendor_library/refusal.h"

namespace flagos {

std::unique_ptr<Native> library_native(std::string vendor);

// The kernel of an operator under one dispatch key: the library's where it has one, and the CPU's under `native_key`.
c10::KernelFunction library_kernel(const c10::OperatorHandle& op, c10::DispatchKey native_key);

// Whether the library refuses an operator, for the life of the process.
const Refusal& refusal_by_library(const c10::OperatorHandle& op);

// Operators that only read or change what a tensor says about its memory.
void register_metadata_operators(Registrar& registrar);

} // namespace flagos
