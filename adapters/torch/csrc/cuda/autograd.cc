// SPDX-License-Identifier: Apache-2.0
#include "cuda/register.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <unordered_set>
#include <vector>

#include "runtime/linkage.h"
#include "runtime/stream.h"
#include "torch_version.h"

namespace flagos {

namespace {

// The autograd engine carries thread-local debug information from the thread that calls backward to the threads that
// run the graph. Only torch's unit tests use this kind of it.
c10::DebugInfoKind kind_of_graph_device() {
  return debug_info_of_tests();
}

struct GraphDevice final : public c10::DebugInfoBase {
  explicit GraphDevice(c10::DeviceType device) : type(device) {}
  c10::DeviceType type;
};

const GraphDevice* graph_device() {
  return static_cast<const GraphDevice*>(c10::ThreadLocalDebugInfo::get(kind_of_graph_device()));
}

// Replaces at::accelerator::getAccelerator in the autograd engine: the device of the graph that runs on this thread.
std::optional<c10::DeviceType> accelerator_of_graph(bool checked) {
  const GraphDevice* graph = graph_device();
  return graph != nullptr ? std::optional<c10::DeviceType>(graph->type) : at::accelerator::getAccelerator(checked);
}

// Replaces at::accelerator::isAccelerator in the autograd engine. Inside a graph only the graph's device is an
// accelerator, so the engine treats tensors of the other as it does those of devices without streams.
bool is_accelerator_of_graph(c10::DeviceType type) {
  const GraphDevice* graph = graph_device();
  if (graph != nullptr && (type == c10::DeviceType::CUDA || type == kFlagos)) {
    return graph->type == type;
  }
  return at::accelerator::isAccelerator(type);
}

// Visits the devices other than the CPU on which the graph behind `outputs` was computed, until `visit` returns false.
template <class Visit>
void each_device(at::TensorList outputs, Visit visit) {
  std::vector<torch::autograd::Node*> stack;
  for (const at::Tensor& output : outputs) {
    if (!output.defined()) {
      continue;
    }
    if (!output.is_cpu() && !visit(output.device().type())) {
      return;
    }
    if (output.grad_fn() != nullptr) {
      stack.push_back(output.grad_fn().get());
    }
  }
  std::unordered_set<torch::autograd::Node*> seen(stack.begin(), stack.end());
  while (!stack.empty()) {
    torch::autograd::Node* node = stack.back();
    stack.pop_back();
    const c10::Device device = node->device();
    if (!device.is_cpu() && !visit(device.type())) {
      return;
    }
    for (const auto& edge : node->next_edges()) {
      if (edge.function != nullptr && seen.insert(edge.function.get()).second) {
        stack.push_back(edge.function.get());
      }
    }
  }
}

bool on_side_stream() {
  const c10::Device device(c10::DeviceType::CUDA, current_device());
  return native_guard()->getStream(device) != native_guard()->getDefaultStream(device);
}

// The device of the graph's tensors, CUDA or flagos; flagos if it has none on either.
c10::DeviceType device_of_graph(at::TensorList outputs, bool on_cuda) {
  std::optional<c10::DeviceType> first;
  if (on_cuda) {
    first = c10::DeviceType::CUDA;
  }
  each_device(outputs, [&](c10::DeviceType type) {
    if (type != c10::DeviceType::CUDA && type != kFlagos) {
      return true;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        !first.has_value() || *first == type,
        "flagos: this graph goes over cuda and flagos tensors, and the current stream is not the default one. torch's "
        "autograd engine orders the streams of one of them only: run the backward pass on the default stream, or keep "
        "to one "
        "device");
    first = type;
    // Only on a side stream must the graph be searched for the other device: on the default stream the work of both
    // devices runs in the order of the calls.
    return on_side_stream();
  });
  return first.value_or(kFlagos);
}

} // namespace

void teach_autograd_engine() {
  const auto answer = [](const char* symbol, void* target) {
    TORCH_CHECK(
        redirect("libtorch_cpu.so", symbol, target),
        "flagos: this build of torch does not call ",
        symbol,
        " where torch's wheels do, so CUDA tensors could not be differentiated beside flagos ones; use torch's "
        "own wheel, or FLAGOS_VENDOR=host");
  };
  answer("_ZN2at11accelerator14getAcceleratorEb", reinterpret_cast<void*>(&accelerator_of_graph));
  answer("_ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE", reinterpret_cast<void*>(&is_accelerator_of_graph));
}

void register_autograd_engine() {
  static torch::Library library(torch::Library::FRAGMENT, "flagos", std::nullopt, __FILE__, __LINE__);
  library.def("enter_backward(Tensor[] outputs, bool on_cuda) -> ()", [](at::TensorList outputs, bool on_cuda) {
    c10::ThreadLocalDebugInfo::_push(
        kind_of_graph_device(), std::make_shared<GraphDevice>(device_of_graph(outputs, on_cuda)));
  });
  library.def("exit_backward() -> ()", [] { c10::ThreadLocalDebugInfo::_pop(kind_of_graph_device()); });
}

} // namespace flagos
