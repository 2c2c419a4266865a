// SPDX-License-Identifier: Apache-2.0
// Forms of operators: the functional, in-place and out= forms of one operator are one kernel to a library.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "aten/traits.h"
#include "flagos_kernels.h"
#include "vendor_library/refusal.h"

namespace flagos {

// The description of an argument for a kernel.
enum class ArgumentKind : uint8_t { kPlain, kNumber, kDtype, kNothing };

struct Form {
  std::string name; // of the operator that is called
  // The operator whose results have the shapes and dtypes of the outputs; none if the outputs are given.
  std::optional<c10::OperatorHandle> functional;
  // The functional operator's entry in the table of traits.
  const Particulars* particulars = nullptr;
  // The leading arguments that the kernel gets; `out` arguments follow them.
  std::vector<ArgumentKind> arguments;
  // For each result, the argument that it is written to, or -1 for a new tensor.
  std::vector<int> results;
  // Of an operator that writes to lists or to several arguments: these, which are its outputs as they are.
  std::vector<int> written;
  bool returns_list = false; // its only result is a list of tensors
  bool in_place = false;
  bool random = false;    // draws numbers
  bool pointwise = false; // each element of the result is computed of the elements at its place
  bool has_tensors = false;
};

// The kernel that serves an operator, and its form; or the reason why there is none.
struct FoundKernel {
  const FlagosKernel* kernel = nullptr; // null if refused
  Form form;
  Refusal refusal;
};

FoundKernel find_kernel(const c10::OperatorHandle& op, const FlagosKernels* kernels);

} // namespace flagos
