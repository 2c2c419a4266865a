// A driver without a device: as much of CUDA and of NVML as the vendor and its tests call. It is stricter
// than the real one where CUDA promises little:
// - functions called by streams run one at a time, and CUDA calls from them are refused;
// - a call needs the current context of its stream or event;
// - copies between host memory wait for their stream;
// - a call in a forked child of a process that had initialised ends that child.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

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
#include <string>
#include <thread>
#include <vector>

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

struct Context;

struct Mark {
  bool done = false;
  std::chrono::steady_clock::time_point time;
};

struct Stream {
  explicit Stream(Context* owner) : context(owner) {}
  Context* context;
  std::deque<std::function<void()>> items;
  size_t unfinished = 0;
  bool closed = false;
};

struct Event {
  Context* context;
  bool timing;
  std::shared_ptr<Mark> mark;
};

struct Context {
  int device;
  Code lost = kSuccess;
  size_t unfinished = 0;
  std::shared_ptr<Stream> standard = nullptr;
  bool peers[kDevices] = {};
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
std::mutex& mutex = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;
std::mutex& one_function = *new std::mutex;
bool initialized = false;
// Asking for the process at every call would cost more than the rest of it.
bool forked = false;
bool reach_all = false;
Context* primary[kDevices];
size_t used[kDevices];
auto& device_blocks = *new std::map<uintptr_t, Block>;
auto& host_blocks = *new std::map<uintptr_t, size_t>;
auto& functions = *new std::map<Function*, std::unique_ptr<Function>>;
auto& streams = *new std::map<Stream*, std::shared_ptr<Stream>>;
thread_local Context* current = nullptr;
thread_local bool in_function = false;

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

void run(std::shared_ptr<Stream> stream) {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return !stream->items.empty() || stream->closed; });
    if (stream->items.empty())
      return;
    auto item = std::move(stream->items.front());
    stream->items.pop_front();
    lock.unlock();
    item();
    lock.lock();
    --stream->unfinished;
    --stream->context->unfinished;
    changed.notify_all();
  }
}

std::shared_ptr<Stream> start(Context* context) {
  auto stream = std::make_shared<Stream>(context);
  std::thread(run, stream).detach();
  return stream;
}

Code find(void* handle, std::shared_ptr<Stream>* stream) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  if (!handle) {
    *stream = current->standard;
    return kSuccess;
  }
  auto found = streams.find(static_cast<Stream*>(handle));
  if (found == streams.end() || found->second->context != current)
    return kInvalidHandle;
  *stream = found->second;
  return kSuccess;
}

void push(const std::shared_ptr<Stream>& stream, std::function<void()> item) {
  std::lock_guard<std::mutex> lock(mutex);
  stream->items.push_back(std::move(item));
  ++stream->unfinished;
  ++stream->context->unfinished;
  changed.notify_all();
}

void drain(const std::shared_ptr<Stream>& stream) {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return stream->unfinished == 0; });
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
