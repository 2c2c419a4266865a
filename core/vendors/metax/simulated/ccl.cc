// SPDX-License-Identifier: Apache-2.0
// What the simulated libraries of collectives run on here: streams and memory of the simulated MACA runtime.
#include <memory>

#include "platform.h"
#include "work.h"

extern "C" {
int mcGetDevice(int* device);
int mcStreamIsCapturing(void* stream, int* status);
}

namespace simulated {

namespace {

using Work = std::function<bool()>;

} // namespace

bool is_stream(void* stream) {
  int status = 0;
  return mcStreamIsCapturing(stream, &status) == 0;
}

bool is_captured(void* stream) {
  int status = 0;
  return mcStreamIsCapturing(stream, &status) == 0 && status != 0;
}

bool queue(const char* function, void* stream, const std::vector<Use>& uses, Work work) {
  std::vector<simulated_metax_use> all;
  for (const Use& each : uses) {
    all.push_back({each.address, each.bytes});
  }
  const auto run = [](void* argument) { return (*static_cast<Work*>(argument))() ? 0 : 1; };
  const auto destroy = [](void* argument) { delete static_cast<Work*>(argument); };
  auto owned = std::make_unique<Work>(std::move(work));
  if (simulated_metax_queue(function, stream, run, owned.get(), destroy, all.data(), all.size()) != 0) {
    return false;
  }
  owned.release();
  return true;
}

char* reach(const void* address, size_t bytes) {
  static char nothing;
  if (bytes == 0) {
    return &nothing;
  }
  void* found = simulated_metax_reach(address, bytes);
  if (found == nullptr) {
    complain("a collective", "memory that the device does not have");
  }
  return static_cast<char*>(found);
}

void complain(const char* function, const std::string& what, int code) {
  simulated_metax_refuse(function, code, what.c_str());
}

bool begin(const char* /*function*/) {
  int device = 0;
  return mcGetDevice(&device) == 0;
}

bool is_ascend() {
  return false;
}

bool is_950() {
  return true;
}

int device() {
  return simulated_metax_device();
}

double seconds_to_connect() {
  return 30;
}

double seconds_to_wait() {
  return 120;
}

// The stream fails, and with it the device.
void nobody_came() {}

} // namespace simulated
