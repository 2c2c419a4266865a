// SPDX-License-Identifier: Apache-2.0
// All of the library in one source: g++ -std=c++17 -O1 -fPIC -fvisibility=hidden -shared -pthread -o libascendcl.so
// libascendcl.cc
#include "arena.cc"
#include "call.cc"
#include "callbacks.cc"
#include "capture.cc"
#include "copies.cc"
#include "device.cc"
#include "event.cc"
#include "handles.cc"
#include "ipc.cc"
#include "kernels.cc"
#include "memory.cc"
#include "parameters.cc"
#include "report.cc"
#include "settings.cc"
#include "stream.cc"
#include "symbols.cc"
