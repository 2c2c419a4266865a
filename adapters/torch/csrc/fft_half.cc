// SPDX-License-Identifier: Apache-2.0
#include "fft_half.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>

#include <unordered_set>

#include "route.h"
#include "to.h"
#include "twin.h"

namespace flagos {

namespace {

// Leads to torch's composite: nobody registered anything else under it.
constexpr c10::DispatchKeySet kComposite(c10::DispatchKey::AutogradLazy);

bool is_half(c10::ScalarType type) {
  return type == c10::kHalf || type == c10::kComplexHalf;
}

// What torch would compute in: integers become the default dtype.
bool computes_in_half(const at::Tensor& tensor) {
  const bool promoted = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  return is_half(promoted ? c10::typeMetaToScalarType(c10::get_default_dtype()) : tensor.scalar_type());
}

bool is_output(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// torch refuses half precision unless the device is called cuda, so the transform is asked of CUDA views, and what
// comes back is shown under its own name; autograd sees both conversions.
void fft_on_views(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  at::Tensor out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (!value.isTensor() || !value.toTensor().defined() || !is_flagos(value.toTensor())) {
      continue;
    }
    if (is_output(arguments[i])) { // its memory may have to grow, which a view cannot
      out = value.toTensor();
      value = at::empty({0}, out.options().device(c10::Device(c10::kCUDA, out.device().index())));
    } else {
      value = to_cuda_view(value.toTensor());
    }
  }
  op.callBoxed(stack);
  c10::IValue& result = stack->back();
  if (!out.defined()) {
    result = to_flagos_view(result.toTensor());
    return;
  }
  const at::Tensor computed = to_flagos_view(result.toTensor());
  at::native::resize_output(out, computed.sizes());
  out.copy_(computed);
  result = out;
}

void fft(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::IValue& self = torch::jit::peek(*stack, 0, op.schema().arguments().size());
  if (self.isTensor() && is_flagos(self.toTensor()) && computes_in_half(self.toTensor())) {
    fft_on_views(op, stack);
  } else {
    op.redispatchBoxed(kComposite, stack);
  }
}

// Transforms; the rest of the family moves or makes numbers.
bool is_transform(const c10::OperatorName& name) {
  static const std::unordered_set<std::string> others = {
      "aten::fft_fftfreq", "aten::fft_rfftfreq", "aten::fft_fftshift", "aten::fft_ifftshift"};
  return name.name.rfind("aten::fft_", 0) == 0 && others.count(name.name) == 0;
}

} // namespace

void register_fft_half(torch::Library& library, torch::Library& autograd) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value() || !is_transform(name)) {
      continue;
    }
    // Composites: below autograd in inference mode, above it otherwise.
    for (torch::Library* where : {&library, &autograd}) {
      where->impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&fft>());
    }
  }
}

} // namespace flagos
