// SPDX-License-Identifier: Apache-2.0
// What the simulated libraries of collectives run on here: streams and memory of the simulated ACL runtime.
#include <cstdlib>
#include <memory>

#include "calls.h"
#include "platform.h"
#include "simulated_ascend.h"

extern "C" {
const char* aclrtGetSocName(void);
int aclmdlRICaptureGetInfo(void* stream, int* status, void** model);
}

namespace simulated {

namespace {

// With which a stream fails whose collective did not end in time.
constexpr int kNotifyTimeout = 507048;

using Work = std::function<bool()>;

int run(void* argument) {
  return (*static_cast<Work*>(argument))() ? 0 : kNotifyTimeout;
}

double seconds_of(const char* name, double standard) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atof(value) : standard;
}

size_t live_of(const char* /*kind*/) {
  return live();
}

__attribute__((constructor)) void join() {
  static const char* const kinds[] = {"communicators", nullptr};
  static const char* const newer[] = {nullptr};
  static const simulated_ascend_part part{kinds, live_of, [](const char*) { return UINT64_MAX; }, [] {}};
  simulated_ascend_join(&part);
  simulated_ascend_hide(reinterpret_cast<const void*>(&join), newer, nullptr);
}

} // namespace

bool is_stream(void* stream) {
  return stream != nullptr; // the runtime looks at the rest when work is queued
}

bool is_captured(void* stream) {
  int status = 0;
  void* model = nullptr;
  return aclmdlRICaptureGetInfo(stream, &status, &model) == 0 && status != 0;
}

bool queue(const char* function, void* stream, const std::vector<Use>& uses, Work work) {
  std::vector<simulated_ascend_use> all;
  for (const Use& each : uses) {
    all.push_back({each.address, each.bytes, each.writes ? 1 : 0});
  }
  const auto destroy = [](void* argument) { delete static_cast<Work*>(argument); };
  auto* argument = new Work(std::move(work));
  return simulated_ascend_launch_owned(stream, function, run, argument, destroy, all.data(), all.size()) == 0;
}

char* reach(const void* address, size_t bytes) {
  return static_cast<char*>(simulated_ascend_address(address, bytes));
}

void complain(const char* function, const std::string& what, int code) {
  if (code != 0) {
    simulated_ascend_refuse(function, code, what.c_str());
  } else {
    simulated_ascend_record(function, what.c_str());
  }
}

bool begin(const char* function) {
  return simulated_ascend_begin(function, 1) == 0;
}

bool is_ascend() {
  return true;
}

bool is_950() {
  return std::string(aclrtGetSocName()).find("Ascend95") == 0;
}

int device() {
  return simulated_ascend_device();
}

double seconds_to_connect() {
  return seconds_of("HCCL_CONNECT_TIMEOUT", 120);
}

double seconds_to_wait() {
  return seconds_of("HCCL_EXEC_TIMEOUT", 1836);
}

void nobody_came() {}

} // namespace simulated
