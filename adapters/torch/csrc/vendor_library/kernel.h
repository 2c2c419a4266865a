// SPDX-License-Identifier: Apache-2.0
// Operators on devices whose kernels are a library's.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "aten/boxed.h"
#include "vendor_library/refusal.h"

namespace flagos {

// Serves a call on dense tensors by the library or, counted, by the CPU.
void serve_by_library(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Traits& traits);

// Copies between tensors of one device by the library's `aten::copy_`.
Refusal copy_by_library(const at::Tensor& to, const at::Tensor& from);

// Throws while the current stream is being captured: what the CPU computes would not be repeated by the graph. `why` is
// the reason why the operator is not served by the library.
void refuse_while_capturing(const std::string& name, const std::string& why);

} // namespace flagos
