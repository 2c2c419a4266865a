// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream.h"

#include <vector>

namespace flagos {

thread_local ThreadState thread_state;
const uint64_t* pending_work = nullptr;

uint64_t& stream_of_far_device(c10::DeviceIndex device) {
  static thread_local std::vector<uint64_t> streams;
  const auto place = static_cast<size_t>(device - ThreadState::kDevices);
  if (place >= streams.size()) {
    streams.resize(place + 1);
  }
  return streams[place];
}

void drain_slowly(c10::DeviceIndex device) {
  if (native->owned_by_torch) {
    open_device_slowly(); // throws: work is pending only in a forked child
    return;
  }
  check(core->stream_sync(device, current_stream(device)));
}

} // namespace flagos
