// SPDX-License-Identifier: Apache-2.0
// How calls begin and end: initialisation, forks, failures, reports.
#include "simulated.h"

namespace simulated {

State& state = *new State;
thread_local int current = 0;
thread_local Code failure = kSuccess;

namespace {

void report(const std::string& line) {
  static std::mutex& one = *new std::mutex;
  const char* path = std::getenv("SIMULATED_METAX_REPORT");
  if (path == nullptr) {
    return;
  }
  std::lock_guard<std::mutex> lock(one);
  if (FILE* file = std::fopen(path, "a")) {
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }
}

int machine_devices() {
  const char* text = std::getenv("SIMULATED_METAX_DEVICES");
  const int count = text != nullptr ? std::atoi(text) : 2;
  return count < 0 ? 0 : count > kMostDevices ? kMostDevices : count;
}

// The devices that a list of numbers shows, up to the first that there is not.
std::vector<int> shown(const char* text, int count) {
  std::vector<int> seen;
  while (*text != '\0') {
    char* rest = nullptr;
    const long number = std::strtol(text, &rest, 10);
    const bool again = std::find(seen.begin(), seen.end(), number) != seen.end();
    if (rest == text || number < 0 || number >= count || again) {
      break;
    }
    seen.push_back(static_cast<int>(number));
    text = *rest == ',' ? rest + 1 : rest;
  }
  return seen;
}

} // namespace

const std::vector<int>& visible_devices() {
  // Read once, when the runtime is initialised.
  static const std::vector<int>& devices = *new std::vector<int>([] {
    std::vector<int> all(static_cast<size_t>(machine_devices()));
    std::iota(all.begin(), all.end(), 0);
    for (const char* name : {"MACA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
      if (const char* text = std::getenv(name)) {
        return shown(text, static_cast<int>(all.size()));
      }
    }
    return all;
  }());
  return devices;
}

int device_count() {
  return static_cast<int>(visible_devices().size());
}

Code end(Code code) {
  if (code != kSuccess) {
    failure = code;
  }
  return code;
}

Code refuse(const char* call, Code code, const std::string& what) {
  const std::string refused = code != kSuccess ? " (refused: " + std::to_string(code) + ")" : "";
  report(std::string(call) + ": " + what + refused);
  return end(code);
}

Code begin(const char* call) {
  if (machine::forked) {
    return refuse(call, kInitialization, "the runtime was initialised before this process was forked");
  }
  machine::initialized = true;
  if (in_function) {
    return refuse(call, kNotPermitted, "a function of a stream called the runtime");
  }
  return kSuccess;
}

Code begin_on_device(const char* call) {
  if (Code code = begin(call)) {
    return code;
  }
  if (device_count() == 0) {
    return end(kNoDevice);
  }
  if (Code code = state.lost) {
    return end(code);
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (!state.in_use[current]) {
    state.in_use[current] = true;
    state.used[current] += kOverhead;
    state.standard[current] = start_stream(current);
  }
  return kSuccess;
}

} // namespace simulated

using namespace simulated;

EXPORT Code mcGetLastError() {
  const Code code = failure;
  failure = kSuccess;
  return code;
}

EXPORT Code mcPeekAtLastError() {
  return failure;
}

EXPORT const char* mcGetErrorName(Code code) {
  static const std::map<Code, const char*> names = {
      {kSuccess, "mcSuccess"},
      {kInvalidValue, "mcErrorInvalidValue"},
      {kMemoryAllocation, "mcErrorMemoryAllocation"},
      {kInitialization, "mcErrorInitializationError"},
      {kNoDevice, "mcErrorNoDevice"},
      {kInvalidDevice, "mcErrorInvalidDevice"},
      {kNoKernelImage, "mcErrorNoKernelImageForDevice"},
      {kInvalidHandle, "mcErrorInvalidResourceHandle"},
      {kSymbolNotFound, "mcErrorSymbolNotFound"},
      {kNotReady, "mcErrorNotReady"},
      {kPeerAlready, "mcErrorPeerAccessAlreadyEnabled"},
      {kLaunchFailure, "mcErrorLaunchFailure"},
      {kNotPermitted, "mcErrorNotPermitted"},
      {kCaptureUnsupported, "mcErrorStreamCaptureUnsupported"},
      {kCaptureInvalidated, "mcErrorStreamCaptureInvalidated"}};
  const auto found = names.find(code);
  return found != names.end() ? found->second : "mcErrorUnknown";
}

EXPORT const char* mcGetErrorString(Code code) {
  switch (code) {
    case kSuccess:
      return "no error";
    case kMemoryAllocation:
      return "out of memory";
    case kNoKernelImage:
      return "no kernel image is available for execution on the device";
    case kLaunchFailure:
      return "unspecified launch failure";
    default:
      return mcGetErrorName(code);
  }
}
