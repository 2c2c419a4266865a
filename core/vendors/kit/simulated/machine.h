// SPDX-License-Identifier: Apache-2.0
// The machine beneath the vendors' simulated libraries: streams that do their work in order and late, events, captures,
// and handles that are never used again.
//
// A simulated library is a face over it, in one source with machine.cc: it has the vendor's names and codes, and
// refuses what the vendor's library or a chip would. Whoever calls a function holds `mutex`, unless it says otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

// Each library has a machine of its own.
#pragma GCC visibility push(hidden)

namespace machine {

// Never destroyed: the threads of streams use them until the process has ended.
extern std::mutex& mutex;
extern std::condition_variable& changed;

// Whether the library was initialised, which the face says.
extern std::atomic<bool> initialized;
// In a child of a process that had initialised the library; the threads and the device are its parent's.
extern std::atomic<bool> forked;

// Whether this thread runs a function of the host for a stream.
extern thread_local bool in_function;
// Runs such a function, without the lock.
void run_on_host(void (*function)(void*), void* argument);

// Memory that work uses. A face derives its own from it.
struct Block {
  // What one item uses of it.
  struct Pending {
    uint64_t item;
    uintptr_t begin;
    uintptr_t end;
    bool writes;
  };
  virtual ~Block() = default;
  // Runs when an item is done with it.
  virtual void released() {}

  std::vector<Pending> pending;
};

// A range of it.
struct Use {
  std::shared_ptr<Block> block;
  uintptr_t begin;
  uintptr_t end;
  bool writes;
};

void add_pending(const Use& use, uint64_t item);
void remove_pending(const Use& use, uint64_t item);
// Whether queued work and a use of this range now are a race.
bool races(const Block& block, uintptr_t begin, uintptr_t end, bool writes);

struct Work {
  std::string name;
  std::function<int()> run; // without the lock; its result is the code that the stream fails with
  std::vector<Use> uses;    // from when it is queued until it has run
  bool always = false;      // runs on a stream that drops its work too, so that nobody waits for ever
};

// What streams belong to: a device, or a context of one.
struct Device {
  int number = 0;
  size_t unfinished = 0; // items of all its streams, closed ones too
};

struct Capture;

struct Item {
  uint64_t id;
  Work work;
};

struct Stream {
  // Each item is late by at most so many microseconds.
  Stream(Device* owner, unsigned most_delay_us);

  Device* const device;
  const int id; // from 1, in the order in which streams are made
  const unsigned delay_us;
  bool started = false; // its thread, with the first item
  bool closed = false;
  std::deque<Item> items;
  uint64_t submitted = 0;
  uint64_t completed = 0;
  uint64_t aborted = 0; // items up to this one are dropped
  int error = 0;        // of the first item that failed since the face took the last one
  std::string failed;   // its name
  bool stops = false;   // a failure drops what comes after it
  std::shared_ptr<Capture> capture;
  std::minstd_rand random; // of the delays
};

inline bool idle(const Stream& stream) {
  return stream.completed == stream.submitted;
}
// Queues work, whether the stream is captured or not.
void submit(const std::shared_ptr<Stream>& stream, Work work);
// The stream does what is queued, and then ends.
void close(Stream& stream);
// Wait for what is queued by now.
void drain(std::unique_lock<std::mutex>& lock, const Stream& stream);
void drain(std::unique_lock<std::mutex>& lock, const Device& device);

// One record of an event; a wait is for the record that was the latest when it was queued.
struct Mark {
  bool done = false;
  uint64_t nanoseconds = 0;
  int code = 0; // the error of the stream that reached it
};

// What a stream has seen of each stream of a capture: a number of nodes.
using Clock = std::map<const Stream*, size_t>;

struct Event {
  std::shared_ptr<Mark> mark; // of the latest record; none before the first
  size_t waits = 0;           // of streams, that have not run
  // Of a record in a capture.
  std::shared_ptr<Capture> capture;
  size_t node = 0;
  Clock clock;
};

// Waits for a mark, if there is one.
void drain(std::unique_lock<std::mutex>& lock, std::shared_ptr<const Mark> mark);
uint64_t nanoseconds_now();
double milliseconds(const Mark& start, const Mark& end);
// The work that reaches a mark, on this stream.
Work reaching(std::string name, const std::shared_ptr<Stream>& stream, const std::shared_ptr<Mark>& mark);
// The work that waits for the latest record, which there is.
Work waiting(std::string name, const std::shared_ptr<Event>& event);

// A piece of captured work. It runs after the one before it on its stream, and after the record that it waits for.
struct Node {
  std::shared_ptr<const Stream> stream;
  Work work;
  bool waits = false;
  size_t after = 0;
};
using Graph = std::vector<Node>;

// A face derives its own from it.
struct Capture {
  std::shared_ptr<Stream> origin;
  std::vector<std::shared_ptr<Stream>> streams; // the origin first
  bool invalid = false;
  bool ended = false;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::map<const Stream*, Clock> clocks;
};

// Those that have not ended.
const std::vector<std::shared_ptr<Capture>>& captures();
void begin_capture(const std::shared_ptr<Capture>& capture, const std::shared_ptr<Stream>& origin);
void end_capture(const std::shared_ptr<Capture>& capture);
// Work of a stream that is captured.
void capture_work(const std::shared_ptr<Stream>& stream, Work work);
void capture_record(const std::shared_ptr<Stream>& stream, Event& event, std::string name);
// Brings the stream into the capture of the event if it is in none.
void capture_wait(const std::shared_ptr<Stream>& stream, const Event& event, std::string name);
// The streams, beside the origin itself, that the origin has not seen to their ends.
size_t unjoined(const Capture& capture);
// Runs a graph in a random one of the orders that its streams and events allow, without the lock: the first code that
// is not 0, after which nothing runs.
int run_graph(const Graph& graph);

// A handle is an address that nobody can read and that is never used again, so that a stale one is always noticed.
// Objects are of kinds, by the face's numbers.
void* make_handle(int kind, std::shared_ptr<void> object);
void destroy_handle(void* handle);

struct Handle {
  int kind = -1;                // of what it is or was; -1 if there never was such a handle
  std::shared_ptr<void> object; // none if it was destroyed
};
Handle find_handle(void* handle);
size_t live_handles(int kind);

// The live object of a handle of this kind, or none.
template <class Object>
std::shared_ptr<Object> live_object(void* handle, int kind) {
  const Handle found = find_handle(handle);
  return found.kind == kind ? std::static_pointer_cast<Object>(found.object) : nullptr;
}

} // namespace machine

#pragma GCC visibility pop
