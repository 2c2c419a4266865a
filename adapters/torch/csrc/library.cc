// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <torch/library.h>

#include "generator.h"
#include "stream.h"

namespace flagos {

void register_library() {
  static torch::Library library(torch::Library::DEF, "flagos", std::nullopt, __FILE__, __LINE__);
  library.def("default_generator(int device) -> Generator?", [](int64_t device) -> at::Generator {
    check_device_index(device);
    return default_generator(static_cast<c10::DeviceIndex>(device));
  });
  // The native generator behind one of flagos, for graphs of the native device.
  library.def("native_generator(Generator? generator) -> Generator?", [](const at::Generator& generator) -> at::Generator {
    return native_generator(generator);
  });
  // The core's id of the current stream; 0 is the default stream.
  library.def("current_stream_id(int device) -> int", [](int64_t device) -> int64_t {
    check_device_index(device);
    return static_cast<int64_t>(current_stream(static_cast<c10::DeviceIndex>(device)));
  });
  // Code that reads device memory on the calling thread (compiled host kernels) waits for queued work with this.
  library.def("drain(int device) -> ()", [](int64_t device) {
    check_device_index(device);
    drain_current_stream(static_cast<c10::DeviceIndex>(device));
  });
  // The pool's segments and blocks, as JSON.
  library.def("memory_snapshot(int device) -> str", [](int64_t device) -> std::string {
    check_device_index(device);
    open_device();
    char* text = nullptr;
    check(core->mem_snapshot_json(static_cast<int32_t>(device), &text));
    std::string snapshot = text;
    core->string_free(text);
    return snapshot;
  });
  library.def("set_memory_fraction(int device, float fraction) -> ()", [](int64_t device, double fraction) {
    check_device_index(device);
    open_device();
    check(core->mem_set_fraction(static_cast<int32_t>(device), fraction));
  });
}

} // namespace flagos
