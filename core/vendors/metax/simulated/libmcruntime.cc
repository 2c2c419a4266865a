// SPDX-License-Identifier: Apache-2.0
// A libmcruntime.so without a chip, in one source: g++ -shared -pthread libmcruntime.cc.
#include "../../kit/simulated/machine.cc"
#include "state.cc"

#include "capture.cc"
#include "devices.cc"
#include "kernels.cc"
#include "memory.cc"
#include "streams.cc"
#include "work.cc"
