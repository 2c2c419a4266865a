// SPDX-License-Identifier: Apache-2.0
#include "cuda/register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>

#include "aten/alias.h"
#include "aten/boxed.h"
#include "cuda/to.h"

namespace flagos {

namespace {

bool is_half(c10::ScalarType type) {
  return type == c10::kHalf || type == c10::kComplexHalf;
}

// Whether torch computes the transform in half precision. Integers are converted to the default dtype first.
bool computes_in_half(const at::Tensor& tensor) {
  const bool promoted = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  return is_half(promoted ? c10::typeMetaToScalarType(c10::get_default_dtype()) : tensor.scalar_type());
}

// torch refuses half precision unless the device is called cuda, so the transform runs on CUDA tensors: on aliases, or,
// where a gradient is needed, on views that autograd follows.
void fft_on_cuda(const c10::OperatorHandle& op, torch::jit::Stack* stack, bool differentiated) {
  if (!differentiated) {
    Traits traits = traits_of(op);
    traits.counts_versions = true; // torch does not for composites
    serve(op, stack, traits, [&](torch::jit::Stack* aliases) {
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CUDA), aliases);
    });
    return;
  }
  c10::IValue& self = (*stack)[stack->size() - op.schema().arguments().size()];
  self = to_cuda_view(self.toTensor());
  op.callBoxed(stack);
  stack->back() = to_flagos_view(stack->back().toTensor());
}

void fft(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::IValue& self = torch::jit::peek(*stack, 0, op.schema().arguments().size());
  if (self.isTensor() && is_flagos(self.toTensor()) && computes_in_half(self.toTensor())) {
    const bool backward = c10::GradMode::is_enabled() && self.toTensor().requires_grad();
    TORCH_CHECK(
        !(backward && op.schema().is_mutable()),
        op.schema().name(),
        "(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
        "requires grad.");
    fft_on_cuda(op, stack, backward || self.toTensor()._fw_grad(/*level=*/0).defined());
  } else {
    op.redispatchBoxed(kComposite, stack);
  }
}

} // namespace

void register_fft_half(Registrar& registrar) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value() || !particulars_of(c10::toString(name)).has(kTransform)) {
      continue;
    }
    for (torch::Library* where : {&registrar.library(), &registrar.autograd()}) {
      where->impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&fft>());
    }
  }
}

} // namespace flagos
