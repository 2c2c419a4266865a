// SPDX-License-Identifier: Apache-2.0
#include "runtime/graphs.h"

#include "runtime/pending.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

FlagosGraph* at_address(int64_t graph) {
  return reinterpret_cast<FlagosGraph*>(static_cast<intptr_t>(graph));
}

} // namespace

void begin_capture(FlagosGraph* graph, uint64_t memory, int32_t mode) {
  prepare_capture();
  const c10::DeviceIndex device = current_device();
  check(core->graph_capture_begin(graph, device, current_stream(device), memory, mode));
}

void replay_graph(FlagosGraph* graph) {
  launch_pending("a graph of the program");
  int32_t device = -1;
  check(core->graph_device(graph, &device));
  // A graph without a device is an empty one, of which the core tells that.
  const auto index = static_cast<c10::DeviceIndex>(device < 0 ? 0 : device);
  check(core->graph_replay(graph, current_stream(index)));
}

uint64_t memory_of_graph(FlagosGraph* graph) {
  uint64_t memory = 0;
  check(core->graph_memory(graph, &memory));
  return memory;
}

void register_graphs(torch::Library& library) {
  library.def("graph_supported() -> ()", [] { check(core->graph_supported()); });
  library.def("graph_memory_create() -> int", []() -> int64_t {
    uint64_t memory = 0;
    check(core->graph_memory_create(&memory));
    return static_cast<int64_t>(memory);
  });
  library.def("graph_create() -> int", []() -> int64_t {
    FlagosGraph* graph = nullptr;
    check(core->graph_create(&graph));
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(graph));
  });
  library.def(
      "graph_capture_begin(int graph, int memory, int mode) -> ()", [](int64_t graph, int64_t memory, int64_t mode) {
        begin_capture(at_address(graph), static_cast<uint64_t>(memory), static_cast<int32_t>(mode));
      });
  library.def(
      "graph_capture_end(int graph) -> ()", [](int64_t graph) { check(core->graph_capture_end(at_address(graph))); });
  library.def("prepare_capture() -> ()", &prepare_capture);
  library.def("graph_replay(int graph) -> ()", [](int64_t graph) { replay_graph(at_address(graph)); });
  library.def("graph_reset(int graph) -> ()", [](int64_t graph) { check(core->graph_reset(at_address(graph))); });
  library.def("graph_memory(int graph) -> int", [](int64_t graph) {
    return static_cast<int64_t>(memory_of_graph(at_address(graph)));
  });
  library.def("graph_destroy(int graph) -> ()", [](int64_t graph) { core->graph_destroy(at_address(graph)); });
  library.def("is_capturing(int device) -> bool", [](int64_t device) -> bool {
    check_device_index(device);
    return native->is_capturing(static_cast<c10::DeviceIndex>(device));
  });
}

} // namespace flagos
