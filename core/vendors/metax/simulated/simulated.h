// SPDX-License-Identifier: Apache-2.0
// What the parts of the simulated libmcruntime.so share: the state of the process, and how a call begins and ends.
//
// Stricter than a chip would be. Everything that a chip would not take is refused, and told in a line of the file that
// SIMULATED_METAX_REPORT names.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "../../kit/simulated/machine.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace simulated {

using Code = int;
enum : Code {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInitialization = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNoKernelImage = 209,
  kInvalidHandle = 400,
  kSymbolNotFound = 500,
  kNotReady = 600,
  kPeerAlready = 704,
  kLaunchFailure = 719,
  kNotPermitted = 800,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureUnjoined = 904,
  kCaptureImplicit = 906,
};

constexpr int kMostDevices = 16;
constexpr size_t kTotal = size_t{1} << 30;
// What the runtime itself takes of a device in use.
constexpr size_t kOverhead = kTotal / 16;

using machine::in_function;
using machine::mutex;
using machine::Stream;
using machine::Work;

enum Kind { kStream, kEvent };

struct Graph {
  std::shared_ptr<const machine::Graph> nodes;
};

struct Event : machine::Event {
  int device = 0;
  bool timing = false;
};

// Memory of a device has two mappings: at the address that programs get nobody may touch it.
struct Block : machine::Block {
  Block(size_t size, int device, int file, uintptr_t inside) : size(size), device(device), file(file), inside(inside) {}
  size_t size;
  int device; // -1: page-locked memory of the host
  int file;
  uintptr_t inside; // where the device's own work touches it
  bool imported = false;
};

// Never destroyed: the threads of streams use them until the process has ended.
struct State {
  std::map<uintptr_t, std::shared_ptr<Block>> blocks;
  machine::Device devices[kMostDevices];
  std::shared_ptr<Stream> standard[kMostDevices];
  size_t used[kMostDevices] = {};
  bool in_use[kMostDevices] = {};
  bool peers[kMostDevices][kMostDevices] = {};
  std::atomic<Code> lost{kSuccess};
};
extern State& state;

// The thread's own: its device, and the failure that nobody has read.
extern thread_local int current;
extern thread_local Code failure;

// The devices that this process sees, by the machine's numbers, and how many they are.
const std::vector<int>& visible_devices();
int device_count();

// Ends a call: keeps a failure for mcGetLastError.
Code end(Code code);
// Refuses a call, and reports it. `what` says what is wrong.
Code refuse(const char* call, Code code, const std::string& what);

// The checks that every call begins with.
Code begin(const char* call);
// The same for a call that uses the current device.
Code begin_on_device(const char* call);

// The live stream of a handle, NULL being the default stream of the current device.
Code find(const char* call, void* handle, std::shared_ptr<Stream>* stream);
// Queues work, or adds it to the capture of the stream, with the lock held.
void push(const std::shared_ptr<Stream>& stream, Work work);
std::shared_ptr<Stream> start_stream(int device);
// Makes the captures of the current device invalid, with the lock held: whether there are any.
bool invalidate_captures();
// Refuses a call that waits while a stream is captured, which makes the capture invalid.
Code refuse_captured(const char* call, const std::shared_ptr<Stream>& stream);

// The block that has these bytes, with the lock held; null where no block has all of them.
std::shared_ptr<Block> block_of(const void* address, size_t size, uintptr_t* start = nullptr);
// What work uses of a block, from this address on.
machine::Use use_of(const std::shared_ptr<Block>& block, const void* address, size_t size);
// The address by which the device's work touches memory, with the lock held: the same for the host's.
char* inside(const void* address);

} // namespace simulated
