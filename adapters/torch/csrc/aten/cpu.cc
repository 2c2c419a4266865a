// SPDX-License-Identifier: Apache-2.0
#include "aten/cpu.h"

#include <ATen/native/CPUFallback.h>

#include <optional>

#include "aten/alias.h"
#include "aten/each_tensor.h"

namespace flagos {

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<c10::Device> device;
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = (*stack)[first + i];
    TORCH_CHECK_NOT_IMPLEMENTED(
        !value.isGenerator() || !value.toGenerator().defined(),
        "flagos: ",
        op.operator_name(),
        " is routed to the CPU, which cannot draw from a flagos generator; leave the generator out, or the route");
    const bool written = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !is_flagos(tensor)) {
        return;
      }
      device = device.value_or(tensor.device());
      // torch leaves the version counters of lists to the kernels, and the CPU's kernel raises those of the copies.
      if (written && value.isTensorList() && !tensor.is_inference()) {
        tensor.unsafeGetTensorImpl()->bump_version();
      }
    });
  }
  at::native::cpu_fallback(op, stack);
  if (!device.has_value()) {
    return;
  }
  // torch moves results to the device of the first tensor, which may be a CPU scalar.
  const auto& returns = op.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    c10::IValue& value = (*stack)[stack->size() - returns.size() + i];
    if (returns[i].alias_info() == nullptr && value.isTensor() && value.toTensor().defined() &&
        value.toTensor().is_cpu()) {
      value = value.toTensor().to(*device);
    }
  }
}

} // namespace flagos
