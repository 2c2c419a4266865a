// SPDX-License-Identifier: Apache-2.0
// What the environment says of the simulated chip; read once, when the library is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace simulated_ascend {

// The `nth` call of a function fails with `code`: at once, or when its work runs if it queues some.
struct Fault {
  std::string function;
  uint64_t nth;
  int code;
};

struct Settings {
  std::vector<int> devices; // physical numbers, in the order of ASCEND_RT_VISIBLE_DEVICES
  std::string invisible;    // why ASCEND_RT_VISIBLE_DEVICES shows no device
  size_t memory;            // bytes of each device
  size_t alignment;         // of device memory; the vendor promises 64
  std::string soc;
  int version[3];    // of CANN
  bool old_version;  // hides what came after 8.1
  unsigned delay_us; // greatest delay before a task
  size_t streams;    // of each device
  size_t events;     // hardware events of each device
  bool peers;
  bool leaks_at_exit;
  std::vector<Fault> faults;
  std::vector<std::string> hidden;
  std::string report;
};

const Settings& settings();

} // namespace simulated_ascend
