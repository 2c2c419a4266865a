// SPDX-License-Identifier: Apache-2.0
// What the parts of the simulated libmcruntime.so share: the state of the process, and how a call begins and ends.
//
// Stricter than a chip would be. Everything that a chip would not take is refused, and told in a line of the file that
// SIMULATED_METAX_REPORT names.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

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

struct Stream;

// What a graph does when it is launched, in the order in which it was captured.
struct Graph {
  std::vector<std::function<void()>> items;
};

struct Capture {
  Stream* origin = nullptr;
  bool valid = true;
  Graph graph;
  // Streams that have joined, and whether their last item is behind something that the origin waits for.
  std::map<Stream*, bool> joined;
};

struct Mark {
  bool done = false;
  std::chrono::steady_clock::time_point time;
};

struct Stream {
  explicit Stream(int device) : device(device) {}
  int device;
  std::deque<std::function<void()>> items;
  size_t unfinished = 0;
  bool closed = false;
  std::shared_ptr<Capture> capture;
};

struct Event {
  int device;
  bool timing;
  std::shared_ptr<Mark> mark;
  // Where the event was recorded in a capture.
  std::weak_ptr<Capture> capture;
  Stream* captured_on = nullptr;
};

// Memory of a device has two mappings: at the address that programs get nobody may touch it.
struct Block {
  size_t size;
  int device; // -1: page-locked memory of the host
  int file;
  uintptr_t inside; // where the device's own work touches it
  bool imported = false;
  int users = 0; // items of work that are queued
};

// Never destroyed: the threads of streams use them until the process has ended.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uintptr_t, Block> blocks;
  std::map<Stream*, std::shared_ptr<Stream>> streams;
  std::set<Event*> events;
  std::shared_ptr<Stream> standard[kMostDevices];
  size_t used[kMostDevices] = {};
  size_t unfinished[kMostDevices] = {}; // items of all streams, destroyed ones too
  bool in_use[kMostDevices] = {};
  bool peers[kMostDevices][kMostDevices] = {};
  std::atomic<Code> lost{kSuccess};
  std::atomic<bool> initialized{false};
  bool forked = false;
};
extern State& state;

// The thread's own: its device, the failure that nobody has read, and whether it runs a function of a stream.
extern thread_local int current;
extern thread_local Code failure;
extern thread_local bool in_function;

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
// Queues work, or adds it to the capture of the stream.
void push(const std::shared_ptr<Stream>& stream, std::function<void()> item);
void drain(const std::shared_ptr<Stream>& stream);
std::shared_ptr<Stream> start_stream(int device);
// Refuses a call that waits while a stream is captured, which makes the capture invalid.
Code refuse_captured(const char* call, const std::shared_ptr<Stream>& stream);

// The block that has these bytes, with the lock held; null where no block has all of them.
Block* block_of(const void* address, size_t size, uintptr_t* start = nullptr);
// The address by which the device's work touches memory, with the lock held: the same for the host's.
char* inside(const void* address);

} // namespace simulated
