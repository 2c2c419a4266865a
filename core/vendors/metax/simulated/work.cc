// SPDX-License-Identifier: Apache-2.0
// Work and memory for the libraries that compute over this runtime.
#include "work.h"

#include "simulated.h"

using namespace simulated;

EXPORT int simulated_metax_queue(
    const char* call,
    void* handle,
    int (*run)(void*),
    void* argument,
    void (*destroy)(void*),
    const simulated_metax_use* uses,
    size_t count) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  Work work{call, nullptr, {}};
  std::lock_guard<std::mutex> lock(mutex);
  for (size_t i = 0; i < count; ++i) {
    if (uses[i].bytes == 0) {
      continue;
    }
    const auto block = block_of(uses[i].address, uses[i].bytes);
    if (block == nullptr) {
      return refuse(call, kInvalidValue, "memory that the device does not have");
    }
    work.uses.push_back(use_of(block, uses[i].address, uses[i].bytes));
  }
  // Of a graph, the work runs as often as the graph does.
  const std::shared_ptr<void> owned(argument, destroy);
  work.run = [=] {
    if (run(owned.get()) != 0) {
      state.lost = kLaunchFailure;
    }
    return 0;
  };
  push(stream, std::move(work));
  return kSuccess;
}

EXPORT void* simulated_metax_reach(const void* address, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  return block_of(address, bytes) != nullptr ? inside(address) : nullptr;
}

EXPORT int simulated_metax_place(const void* address) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto block = block_of(address, 1);
  return block != nullptr ? block->device : -2;
}

EXPORT int simulated_metax_refuse(const char* call, int code, const char* what) {
  return refuse(call, code, what);
}

EXPORT int simulated_metax_device() {
  return begin("simulated_metax_device") == kSuccess && current < device_count() ? visible_devices()[current] : -1;
}

EXPORT int simulated_metax_is_used(int device) {
  std::lock_guard<std::mutex> lock(mutex);
  return device >= 0 && device < kMostDevices && state.in_use[device];
}
