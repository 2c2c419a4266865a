// SPDX-License-Identifier: Apache-2.0
#include "distributed/host_calls.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

namespace flagos {

namespace {

// A call, or several that are one to the caller.
class HostWork final : public c10d::Work {
 public:
  HostWork(
      int rank,
      c10d::OpType type,
      const char* title,
      std::vector<at::Tensor> outputs,
      uint64_t sequence,
      size_t calls)
      : Work(rank, type, title), outputs_(std::move(outputs)), sequence_(sequence), left_(calls) {}

  std::vector<at::Tensor> result() override {
    return outputs_;
  }
  int sourceRank() const override {
    return source_;
  }
  uint64_t getSequencenumber() const override {
    return sequence_;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  void synchronize() override {}

  // Notes the end of one of the calls; the last one completes the work, with the first failure. Returns the future's
  // callbacks, if there are any: they may wait for other calls.
  std::function<void()> end(std::exception_ptr failure, int source);

 private:
  std::vector<at::Tensor> outputs_;
  uint64_t sequence_;
  std::atomic<int> source_{-1};
  std::mutex state_;
  size_t left_;
  std::exception_ptr failure_;
  bool ended_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

c10::intrusive_ptr<c10::ivalue::Future> HostWork::getFuture() {
  std::unique_lock<std::mutex> lock(state_);
  if (future_ == nullptr) {
    // The future has no devices: it completes when the results are there, so that no stream has to wait.
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (ended_) {
      const auto future = future_;
      const auto failure = failure_;
      lock.unlock();
      failure ? future->setError(failure) : future->markCompleted(at::IValue(outputs_));
      return future;
    }
  }
  return future_;
}

std::function<void()> HostWork::end(std::exception_ptr failure, int source) {
  if (source >= 0) {
    source_ = source;
  }
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(state_);
    if (failure && !failure_) {
      failure_ = failure;
    }
    if (--left_ > 0) {
      return nullptr;
    }
    ended_ = true;
    future = future_;
    failure = failure_;
  }
  finish(failure);
  if (future == nullptr) {
    return nullptr;
  }
  return [future, failure, outputs = outputs_] {
    failure ? future->setError(failure) : future->markCompleted(at::IValue(outputs));
  };
}

std::atomic<int64_t> in_flight{0};

// Counts a call until all that it held is free.
struct InFlight {
  InFlight() {
    [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { in_flight = 0; });
    ++in_flight;
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() {
    --in_flight;
  }
};

// A call in a lane of the group, with all it needs until it has ended.
struct QueuedCall {
  InFlight counted; // first, because it is destroyed last
  Collective collective;
  FlagosCollective call{};
  c10::intrusive_ptr<HostWork> work;
  int size = 0;
  std::function<void()> callbacks;
};

int32_t call_ended(void* context, int32_t status, int32_t source) noexcept {
  std::unique_ptr<QueuedCall> queued(static_cast<QueuedCall*>(context));
  const at::NoGradGuard no_grad;
  std::exception_ptr failure;
  try {
    check_comm(status);
    queued->collective.unstage(queued->size);
  } catch (...) {
    failure = std::current_exception();
  }
  queued->collective = {}; // whoever waits may expect its tensors to be free
  queued->callbacks = queued->work->end(failure, source);
  if (queued->callbacks == nullptr) {
    return 0;
  }
  static_cast<void>(queued.release()); // `run_callbacks` frees it
  return 1;
}

void run_callbacks(void* context) noexcept {
  const std::unique_ptr<QueuedCall> queued(static_cast<QueuedCall*>(context));
  const at::NoGradGuard no_grad;
  queued->callbacks();
}

bool run_here(const CommGroup& group, int size, const char* title, const std::vector<Collective>& collectives) {
  if (std::any_of(collectives.begin(), collectives.end(), is_transfer) || comm_api->host_is_idle(group.get()) == 0) {
    return false;
  }
  RECORD_USER_SCOPE(title); // torch records the works of other backends itself
  for (const Collective& collective : collectives) {
    const FlagosCollective call = collective.view();
    check_comm(comm_api->host_run(group.get(), &call));
    collective.unstage(size);
  }
  return true;
}

} // namespace

int64_t host_calls_in_flight() {
  return in_flight.load();
}

c10::intrusive_ptr<c10d::Work> issue_on_host(
    const CommGroup& group,
    int rank,
    int size,
    c10d::OpType type,
    const char* title,
    std::vector<Collective> collectives,
    std::vector<at::Tensor> outputs,
    bool async) {
  if (!async && run_here(group, size, title, collectives)) {
    return nullptr;
  }
  const uint64_t sequence = collectives.empty() ? 0 : collectives.back().sequence;
  auto work = c10::make_intrusive<HostWork>(
      rank, type, title, std::move(outputs), sequence, std::max<size_t>(collectives.size(), 1));
  if (collectives.empty()) {
    work->end(nullptr, -1); // nobody has its future yet
  }
  for (Collective& collective : collectives) {
    auto queued = std::make_unique<QueuedCall>();
    queued->collective = std::move(collective);
    queued->call = queued->collective.view();
    queued->work = work;
    queued->size = size;
    const FlagosCommWaiter waiter{queued.get(), &call_ended, &run_callbacks};
    check_comm(comm_api->host_queue(group.get(), &queued->call, static_cast<int32_t>(async), &waiter));
    static_cast<void>(queued.release()); // belongs to the waiter now
  }
  if (!async) {
    work->wait();
    return nullptr;
  }
  return work;
}

} // namespace flagos
