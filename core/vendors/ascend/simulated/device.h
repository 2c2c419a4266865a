// SPDX-License-Identifier: Apache-2.0
// Devices and contexts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "../../kit/simulated/machine.h"

namespace simulated_ascend {

struct Stream;

struct Context {
  int device;
  bool implicit;
  bool alive = true;
  void* handle = nullptr;
  std::shared_ptr<Stream> standard; // made when it is first used
  std::map<int, int64_t> parameters;
};

struct Device : machine::Device {
  int references = 0;
  std::shared_ptr<Context> implicit;
  int lost = 0;
  size_t streams = 0; // of the hardware, those of captured graphs among them
  size_t events = 0;  // of the hardware
  int saturation = 1;
  std::set<int> peers;
  std::vector<std::weak_ptr<Stream>> all; // streams, some of which are gone
};

std::vector<Device>& devices();
std::shared_ptr<Stream> default_stream(const std::shared_ptr<Context>& context);
size_t implicit_contexts();
size_t default_streams();

} // namespace simulated_ascend
