// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_names.h"

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <new>
#include <string>

#include "runtime/linkage.h"

namespace flagos {

namespace {

constexpr char kName[] = "flagos";

std::atomic<FlagosAsked> waiting{nullptr};

// Set while `asked` runs, since registering the device reads device strings too.
thread_local bool answering = false;

bool names_flagos(const std::string& text) {
  constexpr size_t length = sizeof(kName) - 1;
  return text.compare(0, length, kName) == 0 && (text.size() == length || text[length] == ':');
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
  if (C10_UNLIKELY(asked != nullptr) && !answering && names_flagos(text)) {
    ask(asked);
  }
  new (place) c10::Device(text);
}

} // namespace

void watch_device_names(FlagosAsked asked) {
  constexpr const char* kConstructor = "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
  void* const target = reinterpret_cast<void*>(&construct_device);
  // libtorch_python parses the device arguments of Python programs.
  TORCH_CHECK(
      redirect("libtorch_python.so", kConstructor, target),
      "this build of torch does not read device strings where torch's wheels do, so the first `flagos` cannot be "
      "noticed; import torch_fl in programs that use it");
  redirect("libtorch_cpu.so", kConstructor, target); // TorchScript
  waiting.store(asked, std::memory_order_release);
}

void stop_watching_device_names() {
  waiting.store(nullptr, std::memory_order_release);
}

} // namespace flagos
