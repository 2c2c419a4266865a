// SPDX-License-Identifier: Apache-2.0
#include "composites.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "generator.h"
#include "route.h"
#include "to.h"
#include "twin.h"

namespace flagos {

namespace {

constexpr const char* kNames[] = {
    "aten::cudnn_is_acceptable",
    "aten::lstm.input",
    "aten::lstm.data",
    "aten::gru.input",
    "aten::gru.data",
    "aten::rnn_tanh.input",
    "aten::rnn_tanh.data",
    "aten::rnn_relu.input",
    "aten::rnn_relu.data",
};

// Inside, the rules of autocast for CUDA are those of autocast for flagos outside.
class AutocastAsCuda {
 public:
  AutocastAsCuda()
      : enabled_(at::autocast::is_autocast_enabled(c10::DeviceType::CUDA)),
        dtype_(at::autocast::get_autocast_dtype(c10::DeviceType::CUDA)) {
    at::autocast::set_autocast_enabled(c10::DeviceType::CUDA, at::autocast::is_autocast_enabled(kFlagos));
    at::autocast::set_autocast_dtype(c10::DeviceType::CUDA, at::autocast::get_autocast_dtype(kFlagos));
  }
  ~AutocastAsCuda() {
    at::autocast::set_autocast_enabled(c10::DeviceType::CUDA, enabled_);
    at::autocast::set_autocast_dtype(c10::DeviceType::CUDA, dtype_);
  }
  AutocastAsCuda(const AutocastAsCuda&) = delete;
  AutocastAsCuda& operator=(const AutocastAsCuda&) = delete;

 private:
  bool enabled_;
  at::ScalarType dtype_;
};

template <class Convert>
void convert_tensors(c10::IValue& value, Convert convert) {
  if (value.isTensor()) {
    value = convert(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    const auto from = value.toTensorList();
    c10::List<at::Tensor> to;
    to.reserve(from.size());
    for (const at::Tensor& tensor : from) {
      to.push_back(convert(tensor));
    }
    value = std::move(to);
  }
}

bool needs_gradient(const torch::jit::Stack& stack, size_t first) {
  const auto asks = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  for (size_t i = first; at::GradMode::is_enabled() && i < stack.size(); ++i) {
    if (stack[i].isTensor() && asks(stack[i].toTensor())) {
      return true;
    }
    if (stack[i].isTensorList()) {
      const std::vector<at::Tensor> tensors = stack[i].toTensorVector();
      if (std::any_of(tensors.begin(), tensors.end(), asks)) {
        return true;
      }
    }
  }
  return false;
}

bool on_side_stream() {
  const c10::Device device(c10::DeviceType::CUDA, current_device());
  return cuda_guard()->getStream(device) != cuda_guard()->getDefaultStream(device);
}

class OverCuda final : public c10::OperatorKernel {
 public:
  explicit OverCuda(const c10::OperatorHandle& op) : name_(c10::toString(op.operator_name())), slot_(op_slot(name_)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    enter_op(slot_, name_.c_str());
    const size_t first = stack->size() - op.schema().arguments().size();
    if (needs_gradient(*stack, first) && on_side_stream()) {
      // The engine runs nodes of CUDA tensors in a graph of flagos ones on the default stream (engine.h): the composite
      // of fused cells has no such nodes. Any key will do under which nobody registered anything else.
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::AutogradLazy), stack);
      return;
    }
    for (size_t i = first; i < stack->size(); ++i) {
      if ((*stack)[i].isGenerator()) {
        (*stack)[i] = native_generator((*stack)[i].toGenerator());
      } else {
        convert_tensors((*stack)[i], [](at::Tensor tensor) {
          return tensor.defined() && is_flagos(tensor) ? to_cuda_view(tensor) : tensor;
        });
      }
    }
    {
      const AutocastAsCuda autocast;
      op.callBoxed(stack);
    }
    for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
      convert_tensors((*stack)[i], [](at::Tensor tensor) {
        return tensor.defined() && tensor.is_cuda() ? to_flagos_view(tensor) : tensor;
      });
    }
  }

 private:
  std::string name_;
  FlagosOpSlot* slot_;
};

} // namespace

void register_composites(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered) {
  for (const std::string name : kNames) {
    const size_t dot = name.find('.');
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
        name.substr(0, dot).c_str(), dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
    // Below autograd in inference mode, above it otherwise.
    for (torch::Library* where : {&library, &autograd}) {
      where->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<OverCuda>(op)));
    }
    registered.push_back(name);
  }
}

} // namespace flagos
