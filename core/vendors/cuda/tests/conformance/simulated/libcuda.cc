// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 and a libnvidia-ml.so.1 without a device, in one source: each part uses those before it.
#include "../../../../kit/simulated/machine.cc"

#pragma GCC visibility push(default)
#include "state.cc"

#include "devices.cc"
#include "streams.cc"

#include "ptx.cc"

#include "kernels.cc"
#include "nvml.cc"
#pragma GCC visibility pop
