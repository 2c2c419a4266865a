// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <thread>
#include <utility>

namespace machine {

std::mutex& mutex = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;
std::atomic<bool> initialized{false};
std::atomic<bool> forked{false};
thread_local bool in_function = false;

namespace {

int streams_made = 0;
uint64_t items_made = 0;
auto& active = *new std::vector<std::shared_ptr<Capture>>;

// With the lock held over the fork, the child finds whole structures and can refuse calls.
__attribute__((constructor)) void watch_forks() {
  pthread_atfork(
      [] { mutex.lock(); },
      [] { mutex.unlock(); },
      [] {
        forked = forked || initialized;
        mutex.unlock();
      });
}

void finish(Stream& stream, const Item& item, int code) {
  for (const Use& use : item.work.uses)
    remove_pending(use, item.id);
  ++stream.completed;
  --stream.device->unfinished;
  if (code != 0 && stream.error == 0) {
    stream.error = code;
    stream.failed = item.work.name;
  }
  changed.notify_all();
}

void work_off(const std::shared_ptr<Stream>& stream) {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return !stream->items.empty() || stream->closed; });
    if (stream->items.empty())
      return;
    // Destroyed with the lock, whether it has run or was dropped.
    const Item item = std::move(stream->items.front());
    stream->items.pop_front();
    const bool dropped = (stream->error != 0 && stream->stops) || stream->completed < stream->aborted;
    int code = 0;
    lock.unlock();
    if (stream->delay_us != 0)
      std::this_thread::sleep_for(std::chrono::microseconds(stream->random() % (stream->delay_us + 1)));
    if (!dropped || item.work.always)
      code = item.work.run();
    lock.lock();
    finish(*stream, item, code);
  }
}

} // namespace

void run_on_host(void (*function)(void*), void* argument) {
  in_function = true;
  function(argument);
  in_function = false;
}

void add_pending(const Use& use, uint64_t item) {
  use.block->pending.push_back({item, use.begin, use.end, use.writes});
}

void remove_pending(const Use& use, uint64_t item) {
  auto& all = use.block->pending;
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.item == item; });
  if (found == all.end())
    return;
  all.erase(found);
  use.block->released();
}

bool races(const Block& block, uintptr_t begin, uintptr_t end, bool writes) {
  return std::any_of(block.pending.begin(), block.pending.end(), [&](const auto& each) {
    return each.begin < end && begin < each.end && (writes || each.writes);
  });
}

Stream::Stream(Device* owner, unsigned most_delay_us) : device(owner), id(++streams_made), delay_us(most_delay_us) {
  random.seed(static_cast<unsigned>(id));
}

void submit(const std::shared_ptr<Stream>& stream, Work work) {
  const uint64_t id = ++items_made;
  for (const Use& use : work.uses)
    add_pending(use, id);
  stream->items.push_back({id, std::move(work)});
  ++stream->submitted;
  ++stream->device->unfinished;
  if (!stream->started) {
    stream->started = true;
    std::thread(work_off, stream).detach();
  }
  changed.notify_all();
}

void close(Stream& stream) {
  stream.closed = true;
  changed.notify_all();
}

void drain(std::unique_lock<std::mutex>& lock, const Stream& stream) {
  const uint64_t until = stream.submitted;
  changed.wait(lock, [&] { return stream.completed >= until; });
}

void drain(std::unique_lock<std::mutex>& lock, const Device& device) {
  changed.wait(lock, [&] { return device.unfinished == 0; });
}

uint64_t nanoseconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

double milliseconds(const Mark& start, const Mark& end) {
  return (static_cast<double>(end.nanoseconds) - static_cast<double>(start.nanoseconds)) * 1e-6;
}

Work reaching(std::string name, const std::shared_ptr<Stream>& stream, const std::shared_ptr<Mark>& mark) {
  const auto run = [stream, mark] {
    std::lock_guard<std::mutex> lock(mutex);
    mark->nanoseconds = nanoseconds_now();
    mark->code = stream->error;
    mark->done = true;
    changed.notify_all();
    return 0;
  };
  return {std::move(name), run, {}, true};
}

void drain(std::unique_lock<std::mutex>& lock, std::shared_ptr<const Mark> mark) {
  changed.wait(lock, [&] { return mark == nullptr || mark->done; });
}

Work waiting(std::string name, const std::shared_ptr<Event>& event) {
  ++event->waits;
  // Goes with the work, which is destroyed with the lock.
  const std::shared_ptr<Event> counted(event.get(), [event](Event*) { --event->waits; });
  const auto run = [counted, mark = event->mark] {
    std::unique_lock<std::mutex> lock(mutex);
    drain(lock, mark);
    return 0;
  };
  return {std::move(name), run, {}, true};
}

namespace {

void add_node(Capture& capture, const std::shared_ptr<Stream>& stream, Node node) {
  node.stream = stream;
  capture.graph->push_back(std::move(node));
  ++capture.clocks[stream.get()][stream.get()];
}

} // namespace

const std::vector<std::shared_ptr<Capture>>& captures() {
  return active;
}

void begin_capture(const std::shared_ptr<Capture>& capture, const std::shared_ptr<Stream>& origin) {
  capture->origin = origin;
  capture->streams.push_back(origin);
  capture->clocks[origin.get()];
  origin->capture = capture;
  active.push_back(capture);
}

void end_capture(const std::shared_ptr<Capture>& capture) {
  for (const auto& stream : capture->streams)
    stream->capture.reset();
  capture->ended = true;
  active.erase(std::find(active.begin(), active.end(), capture));
}

void capture_work(const std::shared_ptr<Stream>& stream, Work work) {
  add_node(*stream->capture, stream, {nullptr, std::move(work)});
}

void capture_record(const std::shared_ptr<Stream>& stream, Event& event, std::string name) {
  const auto& capture = stream->capture;
  add_node(*capture, stream, {nullptr, {std::move(name), nullptr, {}}});
  event.capture = capture;
  event.node = capture->graph->size() - 1;
  event.clock = capture->clocks[stream.get()];
}

void capture_wait(const std::shared_ptr<Stream>& stream, const Event& event, std::string name) {
  const auto& capture = event.capture;
  if (!stream->capture) {
    stream->capture = capture;
    capture->streams.push_back(stream);
  }
  add_node(*capture, stream, {nullptr, {std::move(name), nullptr, {}}, true, event.node});
  Clock& clock = capture->clocks[stream.get()];
  for (const auto& [other, seen] : event.clock)
    clock[other] = std::max(clock[other], seen);
}

size_t unjoined(const Capture& capture) {
  const Clock& seen = capture.clocks.at(capture.origin.get());
  return static_cast<size_t>(std::count_if(capture.streams.begin() + 1, capture.streams.end(), [&](const auto& each) {
    const auto found = seen.find(each.get());
    return found == seen.end() || found->second < capture.clocks.at(each.get()).at(each.get());
  }));
}

int run_graph(const Graph& graph) {
  static thread_local std::minstd_rand random;
  std::map<const Stream*, std::vector<size_t>> queues;
  for (size_t index = graph.size(); index-- > 0;)
    queues[graph[index].stream.get()].push_back(index);
  std::vector<bool> done(graph.size());
  for (size_t left = graph.size(); left > 0; --left) {
    std::vector<const Stream*> ready;
    for (const auto& [stream, queue] : queues) {
      if (!queue.empty() && (!graph[queue.back()].waits || done[graph[queue.back()].after]))
        ready.push_back(stream);
    }
    auto& queue = queues[ready[random() % ready.size()]];
    const size_t index = queue.back();
    queue.pop_back();
    done[index] = true;
    if (const int code = graph[index].work.run ? graph[index].work.run() : 0)
      return code;
  }
  return 0;
}

namespace {

constexpr size_t kStep = 64;
constexpr size_t kSpan = size_t{1} << 34;

auto& handles = *new std::vector<Handle>;
auto& alive = *new std::map<int, size_t>;
char* base = nullptr;

Handle* entry_of(void* handle) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(base);
  const size_t index = offset / kStep;
  if (base == nullptr || offset % kStep != 0 || index == 0 || index > handles.size())
    return nullptr;
  return &handles[index - 1];
}

} // namespace

void* make_handle(int kind, std::shared_ptr<void> object) {
  if (base == nullptr)
    base = static_cast<char*>(mmap(nullptr, kSpan, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  // The first is left out, so that a handle that was moved back by one is none.
  const size_t index = handles.size() + 1;
  if (base == MAP_FAILED || index * kStep >= kSpan) {
    std::fprintf(stderr, "the simulated machine has no handle left\n");
    std::abort();
  }
  handles.push_back({kind, std::move(object)});
  ++alive[kind];
  return base + index * kStep;
}

void destroy_handle(void* handle) {
  Handle* entry = entry_of(handle);
  if (entry != nullptr && entry->object) {
    entry->object.reset();
    --alive[entry->kind];
  }
}

Handle find_handle(void* handle) {
  const Handle* entry = entry_of(handle);
  return entry != nullptr ? *entry : Handle{};
}

size_t live_handles(int kind) {
  return alive[kind];
}

} // namespace machine
