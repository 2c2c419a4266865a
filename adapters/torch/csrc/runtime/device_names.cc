// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_names.h"

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <new>
#include <string>
#include <string_view>

#include "runtime/linkage.h"

namespace flagos {

namespace {

constexpr std::string_view kFlagosName = "flagos";
constexpr std::string_view kCudaName = "cuda";

std::atomic<FlagosAsked> waiting{nullptr};

std::atomic<bool> cuda_means_flagos{false};

// Set while `asked` runs, since registering the device reads device strings too.
thread_local bool answering = false;

// Whether a device string names a device of the type `name`: "flagos", "flagos:1".
bool names(std::string_view text, std::string_view name) {
  return text.substr(0, name.size()) == name && (text.size() == name.size() || text[name.size()] == ':');
}

void ask(FlagosAsked asked) {
  std::array<char, 4096> message{};
  answering = true;
  const int32_t failed = asked(message.data(), message.size());
  answering = false;
  TORCH_CHECK(failed == 0, message.data());
}

// Replaces c10::Device::Device(const std::string&).
void construct_device(c10::Device* place, const std::string& text) {
  const FlagosAsked asked = waiting.load(std::memory_order_acquire);
  if (C10_UNLIKELY(asked != nullptr) && !answering && names(text, kFlagosName)) {
    ask(asked);
  }
  if (C10_UNLIKELY(cuda_means_flagos.load(std::memory_order_relaxed)) && names(text, kCudaName)) {
    new (place) c10::Device(std::string(kFlagosName).append(text, kCudaName.size()));
    return;
  }
  new (place) c10::Device(text);
}

// Makes torch read device strings with `construct_device`. Returns false if this build of torch reads them in another
// way.
bool redirect_device_strings() {
  constexpr const char* kConstructor = "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
  void* const target = reinterpret_cast<void*>(&construct_device);
  redirect("libtorch_cpu.so", kConstructor, target); // TorchScript
  // libtorch_python parses the device arguments of Python programs.
  return redirect("libtorch_python.so", kConstructor, target);
}

} // namespace

void watch_device_names(FlagosAsked asked) {
  TORCH_CHECK(
      redirect_device_strings(),
      "this build of torch does not read device strings where torch's wheels do, so the first `flagos` cannot be "
      "noticed; import torch_fl in programs that use it");
  waiting.store(asked, std::memory_order_release);
}

void stop_watching_device_names() {
  waiting.store(nullptr, std::memory_order_release);
}

void alias_cuda() {
  TORCH_CHECK(
      redirect_device_strings(),
      "this build of torch does not read device strings where torch's wheels do, so `cuda` cannot mean flagos; write "
      "`flagos` in programs that use it");
  cuda_means_flagos.store(true, std::memory_order_relaxed);
}

} // namespace flagos
