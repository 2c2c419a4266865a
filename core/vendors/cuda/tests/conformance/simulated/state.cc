// A driver without a device: as much of CUDA and of NVML as the vendor and its tests call. It is stricter
// than the real one where CUDA promises little:
// - functions called by streams run one at a time, and CUDA calls from them are refused;
// - a call needs the current context of its stream or event;
// - copies between host memory wait for their stream;
// - a call in a forked child of a process that had initialised ends that child.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../../../../kit/simulated/machine.h"

using machine::drain;
using machine::forked;
using machine::in_function;
using machine::initialized;
using machine::mutex;
using machine::Stream;

namespace {

using Code = unsigned;
enum : Code {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidPtx = 218,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kAlreadyEnabled = 704,
  kLaunchFailed = 719,
  kNotPermitted = 800,
};
constexpr int kDevices = 2;
constexpr size_t kTotal = size_t{1} << 30;

// Kinds of handles.
enum { kStream, kEvent };

struct Context : machine::Device {
  explicit Context(int device) {
    number = device;
  }
  Code lost = kSuccess;
  std::shared_ptr<Stream> standard = std::make_shared<Stream>(this, 0);
  bool peers[kDevices] = {};
};

struct Event : machine::Event {
  Context* context = nullptr;
  bool timing = false;
};

struct Ptx;

// A kernel of a loaded program: its name, the bytes of each parameter, and what it does, which is nothing without PTX.
struct Function {
  Context* context;
  std::string name;
  std::vector<size_t> sizes;
  std::shared_ptr<const Ptx> ptx;
};

struct Block {
  size_t size;
  int device;
};

// Never destroyed: the threads of streams use them until the process has ended.
std::mutex& one_function = *new std::mutex;
bool reach_all = false;
Context* primary[kDevices];
size_t used[kDevices];
auto& device_blocks = *new std::map<uintptr_t, Block>;
auto& host_blocks = *new std::map<uintptr_t, size_t>;
auto& functions = *new std::map<Function*, std::unique_ptr<Function>>;
thread_local Context* current = nullptr;

// The checks that every call but cuInit begins with.
Code enter() {
  if (!initialized)
    return kNotInitialized;
  if (forked) {
    std::fprintf(stderr, "simulated CUDA was called in a forked child\n");
    _exit(77);
  }
  return in_function ? kNotPermitted : kSuccess;
}

Code enter_context() {
  if (Code code = enter())
    return code;
  if (!current)
    return kInvalidContext;
  std::lock_guard<std::mutex> lock(mutex);
  return current->lost;
}

Code find(void* handle, std::shared_ptr<Stream>* stream) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  *stream = handle ? machine::live_object<Stream>(handle, kStream) : current->standard;
  return *stream && (*stream)->device == current ? kSuccess : kInvalidHandle;
}

// The live event of a handle; none for any other.
std::shared_ptr<Event> find_event(void* handle) {
  std::lock_guard<std::mutex> lock(mutex);
  return machine::live_object<Event>(handle, kEvent);
}

Code push(const char* call, const std::shared_ptr<Stream>& stream, const std::function<void()>& work) {
  std::lock_guard<std::mutex> lock(mutex);
  machine::submit(stream, {call, [work] { return work(), 0; }, {}});
  return kSuccess;
}

Block* block_of(uintptr_t address, Block* copy) {
  auto after = device_blocks.upper_bound(address);
  if (after == device_blocks.begin())
    return nullptr;
  --after;
  if (address >= after->first + after->second.size)
    return nullptr;
  *copy = after->second;
  return copy;
}

void* map(size_t size) {
  void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return start == MAP_FAILED ? nullptr : start;
}

int visible() {
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!text)
    return kDevices;
  int count = 0;
  for (; *text; ++text)
    count += *text >= '0' && *text < '0' + kDevices;
  return count;
}

} // namespace
