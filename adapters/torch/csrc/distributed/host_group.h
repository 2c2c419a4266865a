// SPDX-License-Identifier: Apache-2.0
// Collectives of an engine that works on the calling thread (shm), made asynchronous by threads of their own: one for
// collectives, in order, and one for each rank and direction of transfers, which must not wait for each other.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "distributed/flight_recorder.h"

namespace flagos {

// A call, or several that are one to the caller.
class HostWork final : public c10d::Work {
 public:
  HostWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs, uint64_t sequence);

  std::vector<at::Tensor> result() override {
    return outputs_;
  }
  int sourceRank() const override;
  uint64_t getSequencenumber() const override {
    return sequence_;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  void synchronize() override {}

  // Several calls: the last one to end completes the work, with the first failure.
  void expect(int calls) {
    left_ = calls;
  }
  // Gives what is left to be done then, if anything: the future's callbacks, which may wait for other calls.
  std::function<void()> end(std::exception_ptr failure);
  void set_source(int rank) {
    source_ = rank;
  }

 private:
  std::vector<at::Tensor> outputs_;
  uint64_t sequence_;
  std::atomic<int> source_{-1};
  std::mutex state_;
  int left_ = 1;
  std::exception_ptr failure_;
  bool ended_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Runs tasks one after the other on a thread that starts with the first one. What is queued when it is destroyed is
// finished, by a thread that keeps what it needs.
//
// A task gives what is to be done when it is over: telling whoever waits, which may run callbacks of the program, and
// they may wait for the tasks behind it. So the next task does not wait for that: another thread takes over.
class Lane {
 public:
  using After = std::function<void()>;
  using Task = std::function<After()>;

  ~Lane();
  // Throws when there is no thread and none can be started; the task is not queued then.
  void push(Task task);
  // Runs `task` here if nothing is queued; otherwise does nothing and returns false.
  bool run_here(const std::function<void()>& task);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Task> tasks;
    size_t unfinished = 0;
    bool running = false; // a task; never two
    size_t idle = 0;      // threads that wait for one
    bool closing = false;
  };
  static void work(const std::shared_ptr<State>& state);
  // Sees to it that what is queued will be run: wakes a thread or starts one. With the lock held.
  static void call_a_thread(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class HostGroup {
 public:
  HostGroup(
      std::shared_ptr<Comm> comm,
      std::shared_ptr<Record> record,
      std::string folder,
      std::string name,
      int rank,
      int size);

  // Runs calls in order; null when they are done, which is so unless `async`.
  c10::intrusive_ptr<c10d::Work> issue(
      c10d::OpType type,
      const char* title,
      std::vector<Operation> operations,
      std::vector<at::Tensor> outputs,
      bool async);

  const Comm& comm() const {
    return *comm_;
  }

 private:
  struct Core {
    std::shared_ptr<Comm> comm;
    std::shared_ptr<Record> record;
    std::string folder;
    std::string name;
    int rank;
    int size;
    void run(const Operation& operation, uint64_t number, int* source) const;
  };
  Lane& lane_of(const Operation& operation);

  std::shared_ptr<Comm> comm_;
  std::shared_ptr<Core> core_;
  Lane collectives_;
  std::mutex lanes_mutex_;
  std::map<std::pair<int, uint32_t>, std::unique_ptr<Lane>> transfers_;
};

} // namespace flagos
