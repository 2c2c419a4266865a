// SPDX-License-Identifier: Apache-2.0
// What the simulated machine promises to the libraries over it, as cases that `machine.rs` runs.
#include "../simulated/machine.cc"

#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

using namespace machine;

namespace {

using Lock = std::unique_lock<std::mutex>;

void check(bool good, const char* what) {
  if (!good)
    throw std::runtime_error(what);
}

Device device;

std::shared_ptr<Stream> stream(unsigned delay_us = 0) {
  return std::make_shared<Stream>(&device, delay_us);
}

// Work that adds a number to a list.
Work adding(std::vector<int>& list, int number, int code = 0) {
  const auto run = [&list, number, code] {
    std::lock_guard<std::mutex> lock(mutex);
    list.push_back(number);
    return code;
  };
  return {"adding " + std::to_string(number), run, {}};
}

// Work that goes on when the gate is open.
Work held(const bool& open) {
  const auto run = [&open] {
    Lock lock(mutex);
    changed.wait(lock, [&] { return open; });
    return 0;
  };
  return {"held", run, {}};
}

void open_gate(bool& gate) {
  gate = true;
  changed.notify_all();
}

void work_runs_in_order_and_late() {
  Lock lock(mutex);
  std::vector<int> list;
  const auto one = stream(2000);
  for (int number = 0; number < 20; ++number)
    submit(one, adding(list, number));
  check(list.empty() && !idle(*one) && device.unfinished == 20, "work waits for the thread of its stream");
  drain(lock, *one);
  check(list.size() == 20 && std::is_sorted(list.begin(), list.end()), "work runs in order");
  check(idle(*one) && device.unfinished == 0, "nothing is left");
  close(*one);
}

void a_closed_stream_does_what_is_queued() {
  Lock lock(mutex);
  std::vector<int> list;
  bool gate = false;
  auto one = stream();
  submit(one, held(gate));
  submit(one, adding(list, 1));
  close(*one);
  const std::weak_ptr<Stream> left = one;
  one.reset();
  check(!left.expired() && device.unfinished == 2, "its thread has the stream");
  open_gate(gate);
  drain(lock, device);
  check(list.size() == 1, "it does its work");
  lock.unlock();
  while (!left.expired())
    std::this_thread::yield();
  lock.lock();
}

void failures_drop_work_where_the_stream_stops() {
  Lock lock(mutex);
  for (const bool stops : {false, true}) {
    std::vector<int> list;
    const auto one = stream();
    one->stops = stops;
    submit(one, adding(list, 1, 7));
    submit(one, adding(list, 2, 8));
    Work always = adding(list, 3);
    always.always = true;
    submit(one, std::move(always));
    drain(lock, *one);
    check(one->error == 7 && one->failed == "adding 1", "the first failure is the stream's");
    check(list == (stops ? std::vector<int>{1, 3} : std::vector<int>{1, 2, 3}), "what runs after a failure");
    close(*one);
  }
}

void aborted_work_does_not_run() {
  Lock lock(mutex);
  std::vector<int> list;
  bool gate = false;
  const auto one = stream();
  submit(one, held(gate));
  submit(one, adding(list, 1));
  one->aborted = one->submitted;
  submit(one, adding(list, 2));
  open_gate(gate);
  drain(lock, *one);
  check(list == std::vector<int>{2}, "only what came after the abort runs");
  close(*one);
}

void memory_is_pending_until_its_work_has_run() {
  struct Counted : Block {
    void released() override {
      ++count;
    }
    int count = 0;
  };
  Lock lock(mutex);
  bool gate = false;
  const auto one = stream();
  const auto block = std::make_shared<Counted>();
  Work work = held(gate);
  work.uses = {{block, 16, 32, false}, {block, 64, 80, true}};
  submit(one, std::move(work));
  check(!races(*block, 16, 32, false), "two reads are no race");
  check(races(*block, 31, 40, true) && races(*block, 0, 17, true), "a write of what is read is one");
  check(races(*block, 79, 80, false), "and a read of what is written");
  check(!races(*block, 32, 64, true) && !races(*block, 80, 90, true), "bytes beside it are free");
  open_gate(gate);
  drain(lock, *one);
  check(block->pending.empty() && block->count == 2, "nothing is pending at the end");
  close(*one);
}

void events_order_streams_and_have_times() {
  Lock lock(mutex);
  std::vector<int> list;
  bool gate = false;
  const auto first = stream(), second = stream();
  const auto event = std::make_shared<Event>();
  const auto record = [&] {
    event->mark = std::make_shared<Mark>();
    submit(first, reaching("record", first, event->mark));
    return event->mark;
  };
  const auto before = record();
  drain(lock, before);
  submit(first, held(gate));
  submit(first, adding(list, 1, 7));
  const auto mark = record();
  submit(second, waiting("wait", event));
  submit(second, adding(list, 2));
  check(event->waits == 1 && !mark->done && before->done, "the wait has not run");
  record();
  open_gate(gate);
  drain(lock, *second);
  check(list == (std::vector<int>{1, 2}), "the second stream comes after the record");
  check(event->waits == 0 && mark->code == 7, "the record has the error of its stream");
  check(before->code == 0 && milliseconds(*before, *mark) > 0, "time goes on between records");
  check(milliseconds(*mark, *before) < 0, "and has a sign");
  drain(lock, std::shared_ptr<const Mark>());
  drain(lock, *first);
  for (const auto& each : {first, second})
    close(*each);
}

void a_capture_runs_in_every_order_that_it_allows() {
  Lock lock(mutex);
  std::vector<int> list;
  const auto origin = stream(), other = stream();
  const auto capture = std::make_shared<Capture>();
  begin_capture(capture, origin);
  check(captures().size() == 1 && origin->capture == capture, "the capture goes on");
  Event fork, join;
  capture_work(origin, adding(list, 1));
  capture_record(origin, fork, "fork");
  capture_wait(other, fork, "wait");
  capture_work(origin, adding(list, 2));
  capture_work(other, adding(list, 3));
  check(other->capture == capture && unjoined(*capture) == 1, "the other stream has to come back");
  capture_record(other, join, "join");
  capture_wait(origin, join, "wait");
  check(unjoined(*capture) == 0, "it has");
  capture_work(other, adding(list, 5));
  check(unjoined(*capture) == 1, "work after the record has to come back too");
  capture_record(other, join, "join");
  capture_wait(origin, join, "wait");
  capture_work(origin, adding(list, 4));
  end_capture(capture);
  check(capture->ended && captures().empty() && !origin->capture && !other->capture, "the capture has ended");
  check(list.empty() && idle(*origin) && idle(*other), "captured work does not run by itself");
  std::map<std::vector<int>, int> orders;
  lock.unlock();
  for (int run = 0; run < 100; ++run) {
    list.clear();
    check(run_graph(*capture->graph) == 0, "it runs");
    ++orders[list];
  }
  lock.lock();
  check(orders.size() == 3, "2 may come before, between and after 3 and 5");
  for (const auto& [order, count] : orders)
    check(order.front() == 1 && order.back() == 4, "what is ordered stays in order");
}

void a_graph_ends_with_its_first_failure() {
  Lock lock(mutex);
  std::vector<int> list;
  const auto origin = stream();
  const auto capture = std::make_shared<Capture>();
  begin_capture(capture, origin);
  capture_work(origin, adding(list, 1, 9));
  capture_work(origin, adding(list, 2));
  end_capture(capture);
  lock.unlock();
  check(run_graph(*capture->graph) == 9 && list == std::vector<int>{1}, "nothing runs after it");
  lock.lock();
}

void handles_are_never_used_again() {
  Lock lock(mutex);
  const auto number = std::make_shared<int>(5);
  void* const handle = make_handle(1, number);
  check(live_object<int>(handle, 1) == number && live_handles(1) == 1, "a handle is for its object");
  check(live_object<int>(handle, 2) == nullptr, "of its kind");
  check(find_handle(static_cast<char*>(handle) + 1).kind == -1, "an address within it is none");
  check(find_handle(nullptr).kind == -1 && find_handle(number.get()).kind == -1, "nor is any other");
  destroy_handle(handle);
  destroy_handle(handle);
  check(find_handle(handle).kind == 1 && !find_handle(handle).object, "it was destroyed");
  check(number.use_count() == 1 && live_handles(1) == 0, "and its object is let go");
  for (int count = 0; count < 100; ++count)
    check(make_handle(1, number) != handle, "its address is not used again");
}

void functions_of_streams_are_marked() {
  bool inside = false;
  run_on_host([](void* argument) { *static_cast<bool*>(argument) = in_function; }, &inside);
  check(inside && !in_function, "while they run");
}

void a_child_is_marked_if_the_parent_was_initialised() {
  const auto child_is_marked = [] {
    const pid_t child = fork();
    if (child == 0)
      _exit(forked ? 1 : 0);
    int status = 0;
    check(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status), "there was a child");
    return WEXITSTATUS(status) == 1;
  };
  check(!child_is_marked(), "before");
  initialized = true;
  check(child_is_marked() && !forked, "after");
  initialized = false;
}

struct Case {
  const char* name;
  void (*run)();
};
#define CASE(function) {#function, function}
constexpr Case kCases[] = {
    CASE(work_runs_in_order_and_late),
    CASE(a_closed_stream_does_what_is_queued),
    CASE(failures_drop_work_where_the_stream_stops),
    CASE(aborted_work_does_not_run),
    CASE(memory_is_pending_until_its_work_has_run),
    CASE(events_order_streams_and_have_times),
    CASE(a_capture_runs_in_every_order_that_it_allows),
    CASE(a_graph_ends_with_its_first_failure),
    CASE(handles_are_never_used_again),
    CASE(functions_of_streams_are_marked),
    CASE(a_child_is_marked_if_the_parent_was_initialised),
};

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// The name of a case; NULL after the last.
EXPORT const char* machine_case(size_t index) {
  return index < std::size(kCases) ? kCases[index].name : nullptr;
}

// Runs a case. Returns NULL, or what did not hold.
EXPORT const char* machine_run(size_t index) {
  static std::string failure;
  try {
    kCases[index].run();
    return nullptr;
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}
