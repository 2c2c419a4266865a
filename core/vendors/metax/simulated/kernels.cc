// SPDX-License-Identifier: Apache-2.0
// Programs, whose kernels are named by their text: `simulated-mcfatbin axpy stop`.
#include "simulated.h"

namespace simulated {

namespace {

struct Kernel {
  const char* name;
  // Bytes of each parameter, and whether it is the address of device memory.
  std::vector<size_t> sizes;
  std::function<void(const std::vector<uint64_t>&)> run;
};

// y += a * x over n numbers.
void axpy(const std::vector<uint64_t>& words) {
  float a = 0;
  std::memcpy(&a, &words[2], sizeof a);
  const int n = static_cast<int>(words[3]);
  auto* y = reinterpret_cast<float*>(words[0]);
  const auto* x = reinterpret_cast<const float*>(words[1]);
  for (int i = 0; i < n; ++i) {
    y[i] += a * x[i];
  }
}

// Stops with an error, after which the device is lost.
void stop(const std::vector<uint64_t>&) {
  state.lost = kLaunchFailure;
}

const std::vector<Kernel>& kernels() {
  static const auto& all = *new std::vector<Kernel>{{"axpy", {8, 8, 4, 4}, axpy}, {"stop", {}, stop}};
  return all;
}

struct Module {
  std::set<std::string> names;
};

std::set<Module*>& modules = *new std::set<Module*>;

} // namespace

} // namespace simulated

EXPORT Code mcModuleLoadData(Module** module, const void* image) {
  if (Code code = begin_on_device("mcModuleLoadData")) {
    return code;
  }
  const std::string magic = "simulated-mcfatbin";
  if (module == nullptr || image == nullptr) {
    return refuse("mcModuleLoadData", kInvalidValue, "no output, or no image");
  }
  std::string text = static_cast<const char*>(image);
  if (text.compare(0, magic.size(), magic) != 0) {
    return end(kInvalidImage);
  }
  auto* made = new Module;
  for (const Kernel& kernel : kernels()) {
    if (text.find(std::string(" ") + kernel.name) != std::string::npos) {
      made->names.insert(kernel.name);
    }
  }
  std::lock_guard<std::mutex> lock(mutex);
  modules.insert(made);
  return *module = made, kSuccess;
}

EXPORT Code mcModuleGetFunction(const Kernel** function, Module* module, const char* name) {
  const char* const call = "mcModuleGetFunction";
  if (Code code = begin_on_device(call)) {
    return code;
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (function == nullptr || name == nullptr || modules.count(module) == 0) {
    return refuse(call, kInvalidHandle, "no output, no name, or no loaded module has this handle");
  }
  for (const Kernel& kernel : kernels()) {
    if (name == std::string(kernel.name) && module->names.count(name) != 0) {
      return *function = &kernel, kSuccess;
    }
  }
  return end(kSymbolNotFound);
}

EXPORT Code mcModuleUnload(Module* module) {
  if (Code code = begin_on_device("mcModuleUnload")) {
    return code;
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (modules.erase(module) == 0) {
    return refuse("mcModuleUnload", kInvalidHandle, "no loaded module has this handle");
  }
  delete module;
  return kSuccess;
}

EXPORT Code mcModuleLaunchKernel(
    const Kernel* function,
    unsigned grid_x,
    unsigned grid_y,
    unsigned grid_z,
    unsigned block_x,
    unsigned block_y,
    unsigned block_z,
    unsigned shared,
    void* handle,
    void** parameters,
    void** extra) {
  const char* const call = "mcModuleLaunchKernel";
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  const uint64_t threads = uint64_t{block_x} * block_y * block_z;
  const bool shaped = grid_x != 0 && grid_y != 0 && grid_z != 0 && threads != 0 && threads <= 1024;
  if (function == nullptr || !shaped || shared > 64U << 10 || extra != nullptr) {
    return refuse(call, kInvalidValue, "no function, a shape that no device has, or parameters in `extra`");
  }
  std::vector<uint64_t> words;
  Work work{call, nullptr, {}};
  std::lock_guard<std::mutex> lock(mutex);
  for (size_t i = 0; i < function->sizes.size(); ++i) {
    uint64_t word = 0;
    std::memcpy(&word, parameters[i], function->sizes[i]);
    if (function->sizes[i] == 8) {
      const auto* address = reinterpret_cast<const void*>(word);
      const auto block = block_of(address, 1);
      if (block == nullptr) {
        return refuse(call, kInvalidValue, "a pointer is not to memory that the device reaches");
      }
      work.uses.push_back(use_of(block, address, 1));
      word = reinterpret_cast<uint64_t>(inside(address));
    }
    words.push_back(word);
  }
  work.run = [=] {
    function->run(words);
    return 0;
  };
  push(stream, std::move(work));
  return kSuccess;
}
