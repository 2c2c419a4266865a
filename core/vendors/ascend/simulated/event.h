// SPDX-License-Identifier: Apache-2.0
// Events of both kinds: those that take an event of the hardware when they are recorded, and those that do not ("Ex").
#pragma once

#include <cstdint>

#include "../../kit/simulated/machine.h"

namespace simulated_ascend {

struct Event : machine::Event {
  void* handle = nullptr;
  int device = 0;
  bool extended = false;
  uint32_t flags = 0;
  bool hardware = false;
};

} // namespace simulated_ascend
