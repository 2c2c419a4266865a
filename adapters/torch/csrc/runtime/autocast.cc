// SPDX-License-Identifier: Apache-2.0
#include "runtime/register.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace flagos {

namespace {

// torch's autocast macros name members of both.
using namespace at;
using namespace at::autocast;

at::Tensor binary_cross_entropy(
    const at::Tensor& /*input*/,
    const at::Tensor& /*target*/,
    const std::optional<at::Tensor>& /*weight*/,
    int64_t /*reduction*/) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Use "
      "binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, or leave autocast for this operator.");
}

} // namespace

void register_autocast() {
  static torch::Library fallthrough(
      torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  fallthrough.fallback(torch::CppFunction::makeFallthrough());

  static torch::Library m(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
#define FLAGOS_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(FLAGOS_LOWER_PRECISION)
#undef FLAGOS_LOWER_PRECISION
#define FLAGOS_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FLAGOS_FP32)
#undef FLAGOS_FP32
#define FLAGOS_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLAGOS_FP32_SET_OPT_DTYPE)
#undef FLAGOS_FP32_SET_OPT_DTYPE
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define FLAGOS_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(FLAGOS_PROMOTE)
#undef FLAGOS_PROMOTE
  m.impl(TORCH_SELECTIVE_NAME("binary_cross_entropy"), TORCH_FN(binary_cross_entropy));
}

} // namespace flagos
