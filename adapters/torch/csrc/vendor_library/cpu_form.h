// SPDX-License-Identifier: Apache-2.0
// Arguments that the CPU's kernels want in another form than a device's: statistics that a normalization's kernel hands
// to its backward kernel, where one computes on the device and the other on the CPU, and masks.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

#include "aten/traits.h"

namespace flagos {

// The form in which the CPU's kernel takes the arguments of one operator; for most it is the device's.
class CpuForm {
 public:
  explicit CpuForm(const c10::OperatorHandle& op);

  // Gives the arguments, the last on the stack, the form that the CPU's kernel has for them.
  void match(torch::jit::Stack* arguments) const {
    if (C10_UNLIKELY(!statistics_.empty())) {
      match_statistics(arguments);
    }
    if (C10_UNLIKELY(adds_mask_)) {
      match_mask(arguments);
    }
  }

 private:
  // Gives the statistics of a normalization the dtype that the CPU's kernel has for them: that of the weights, or of
  // the input without weights. Devices keep them in float32, as torch's meta kernels do.
  void match_statistics(torch::jit::Stack* arguments) const;
  // Gives fused attention a mask that is added, 0 and minus infinity, for one of booleans.
  void match_mask(torch::jit::Stack* arguments) const;

  size_t num_arguments_;
  std::vector<size_t> statistics_;
  std::vector<size_t> deciding_;
  bool adds_mask_;
  size_t mask_ = 0;
  size_t query_ = 0;
};

} // namespace flagos
