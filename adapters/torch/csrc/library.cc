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
}

} // namespace flagos
