// SPDX-License-Identifier: Apache-2.0
#include "composites.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "generator.h"
#include "route.h"
#include "to.h"
#include "twin.h"

namespace flagos {

namespace {

// What torch would only do for flagos if it took flagos for CUDA: cuDNN, fused attention, fused cells.
constexpr const char* kNames[] = {
    "aten::_batch_norm_impl_index",
    "aten::_batch_norm_impl_index_backward",
    "aten::batch_norm",
    "aten::instance_norm",
    "aten::ctc_loss.IntList",
    "aten::ctc_loss.Tensor",
    "aten::cudnn_is_acceptable",
    "aten::grid_sampler",
    "aten::_weight_norm",
    "aten::lstm.input",
    "aten::lstm.data",
    "aten::gru.input",
    "aten::gru.data",
    "aten::rnn_tanh.input",
    "aten::rnn_tanh.data",
    "aten::rnn_relu.input",
    "aten::rnn_relu.data",
    "aten::lstm_cell",
    "aten::gru_cell",
    "aten::rnn_tanh_cell",
    "aten::rnn_relu_cell",
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

class OverCuda final : public c10::OperatorKernel {
 public:
  explicit OverCuda(const c10::OperatorHandle& op) : name_(c10::toString(op.operator_name())), slot_(op_slot(name_)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    enter_op(slot_, name_.c_str());
    const size_t first = stack->size() - op.schema().arguments().size();
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
