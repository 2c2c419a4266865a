// SPDX-License-Identifier: Apache-2.0
// The current stream for programs of others: `torch_fl/include/flagos_torch.h`.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <limits>

#include "../../python/torch_fl/include/flagos_torch.h"
#include "runtime/native.h"

extern "C" int32_t flagos_current_stream(int32_t device, void** stream) {
  try {
    if (stream == nullptr || device < -1 || device > std::numeric_limits<c10::DeviceIndex>::max()) {
      return 1;
    }
    // torch's own table, which has no entry until the device is registered.
    const auto* guard = c10::impl::getDeviceGuardImpl(flagos::kFlagos);
    const auto index = static_cast<c10::DeviceIndex>(device);
    *stream = guard->getStreamNativeHandle(guard->getStream(c10::Device(flagos::kFlagos, index)));
    return 0;
  } catch (...) { // no exception crosses into programs of others
    return 1;
  }
}
