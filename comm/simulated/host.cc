// SPDX-License-Identifier: Apache-2.0
// Work on streams of the flagos host vendor, through its C table, so that it is as asynchronous as on a device;
// without the table it runs at once.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "flagos.h"
#include "platform.h"

namespace simulated {

namespace {

const FlagosApi* core = nullptr;
std::atomic<int> misuses{0};

} // namespace

bool is_stream(void* stream) {
  int32_t idle = 0;
  return core == nullptr || core->stream_query(0, reinterpret_cast<uintptr_t>(stream), &idle) == FLAGOS_OK;
}

bool is_captured(void* /*stream*/) {
  return false;
}

bool queue(const char* /*function*/, void* stream, const std::vector<Use>& /*uses*/, std::function<bool()> work) {
  if (core == nullptr) {
    work();
    return true;
  }
  auto* context = new std::function<bool()>(std::move(work));
  const auto run = [](void* pointer) {
    const std::unique_ptr<std::function<bool()>> task(static_cast<std::function<bool()>*>(pointer));
    (*task)();
  };
  return core->stream_launch(0, reinterpret_cast<uintptr_t>(stream), run, context) == FLAGOS_OK;
}

char* reach(const void* address, size_t /*bytes*/) {
  return static_cast<char*>(const_cast<void*>(address));
}

void complain(const char* function, const std::string& what, int /*code*/) {
  ++misuses;
  std::fprintf(stderr, "simulated library: %s: %s\n", function, what.c_str());
}

bool begin(const char* /*function*/) {
  return true;
}

bool is_ascend() {
  return false;
}

bool is_950() {
  return true;
}

int device() {
  return -1;
}

double seconds_to_connect() {
  return 30;
}

double seconds_to_wait() {
  return 30;
}

// A peer that is gone must not leave this process behind.
void nobody_came() {
  std::fprintf(stderr, "simulated library: a rank did not come\n");
  std::abort();
}

} // namespace simulated

// Tells the library of the host vendor's streams: `api` is a `const FlagosApi*`. Returns how often it was misused so
// far.
extern "C" int simulated_use_core(const void* api) {
  simulated::core = static_cast<const FlagosApi*>(api);
  return simulated::misuses;
}

extern "C" int simulated_misuses(void) {
  return simulated::misuses;
}
