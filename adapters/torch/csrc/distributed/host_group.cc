// SPDX-License-Identifier: Apache-2.0
#include "distributed/host_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/thread_name.h>

#include <system_error>
#include <thread>

namespace flagos {

HostWork::HostWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs, uint64_t sequence)
    : Work(rank, type, title), outputs_(std::move(outputs)), sequence_(sequence) {}

int HostWork::sourceRank() const {
  return source_;
}

c10::intrusive_ptr<c10::ivalue::Future> HostWork::getFuture() {
  std::unique_lock<std::mutex> lock(state_);
  if (future_ == nullptr) {
    // Without devices: it completes when the results are there, so that no stream has to wait.
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

std::function<void()> HostWork::end(std::exception_ptr failure) {
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

Lane::~Lane() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->closing = true;
  state_->changed.notify_all();
}

void Lane::call_a_thread(const std::shared_ptr<State>& state) {
  if (state->idle > 0) {
    state->changed.notify_one();
  } else {
    std::thread(&Lane::work, state).detach();
    ++state->idle; // on its way
  }
}

void Lane::push(Task task) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->tasks.push_back(std::move(task));
  ++state_->unfinished;
  if (state_->running) {
    return; // who runs it looks for the next one
  }
  try {
    call_a_thread(state_);
  } catch (const std::system_error& error) {
    state_->tasks.pop_back();
    --state_->unfinished;
    TORCH_CHECK_WITH(
        DistBackendError,
        false,
        "flagos: the thread that runs collectives could not be started (",
        error.what(),
        "): the process has as many as it may have (ulimit -u, or the container's limit of processes)");
  }
}

bool Lane::run_here(const std::function<void()>& task) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->unfinished != 0) {
      return false;
    }
  }
  task();
  return true;
}

void Lane::work(const std::shared_ptr<State>& state) {
  c10::setThreadName("flagos_comm");
  const at::NoGradGuard no_grad;
  std::unique_lock<std::mutex> lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return (!state->tasks.empty() && !state->running) || state->closing; });
    --state->idle;
    if (state->tasks.empty() || state->running) {
      return; // closing
    }
    Task task = std::move(state->tasks.front());
    state->tasks.pop_front();
    state->running = true;
    lock.unlock();
    After after = task();
    task = nullptr; // its tensors go before the lane is free
    lock.lock();
    --state->unfinished;
    state->running = false;
    if (after != nullptr) {
      if (!state->tasks.empty()) {
        try {
          call_a_thread(state);
        } catch (const std::system_error&) {
          // No thread is to be had: this one goes on with the next task once callbacks are over.
        }
      }
      lock.unlock();
      after();
      after = nullptr;
      lock.lock();
      if (state->idle > 0 && state->tasks.empty()) {
        return; // another one waits already
      }
    }
    ++state->idle;
  }
}

HostGroup::HostGroup(
    std::shared_ptr<Comm> comm,
    std::shared_ptr<Record> record,
    std::string folder,
    std::string name,
    int rank,
    int size)
    : comm_(comm),
      core_(
          std::make_shared<Core>(
              Core{std::move(comm), std::move(record), std::move(folder), std::move(name), rank, size})) {}

void HostGroup::Core::run(const Operation& operation, uint64_t number, int* source) const {
  const FlagosCollective call = operation.view();
  const bool any = operation.kind == FlagosCommKind_Recv && operation.root == FLAGOS_COMM_ANY_RANK;
  const int32_t status =
      any ? comm_api->receive_any(comm->get(), &call, source) : comm_api->run(comm->get(), &call, nullptr);
  record->done(number, status == FLAGOS_COMM_OK);
  if (status == FLAGOS_COMM_OK) {
    operation.unstage(size);
    return;
  }
  if (status != FLAGOS_COMM_INVALID_ARGUMENT && status != FLAGOS_COMM_UNSUPPORTED) {
    const std::string why = comm_api->last_error();
    record->dump(folder, name, rank, comm->state(), why);
    TORCH_CHECK_WITH(DistBackendError, false, why);
  }
  raise_comm(status);
}

Lane& HostGroup::lane_of(const Operation& operation) {
  if (!is_transfer(operation)) {
    return collectives_;
  }
  const std::lock_guard<std::mutex> lock(lanes_mutex_);
  auto& lane = transfers_[{operation.root, operation.kind}];
  if (lane == nullptr) {
    lane = std::make_unique<Lane>();
  }
  return *lane;
}

c10::intrusive_ptr<c10d::Work> HostGroup::issue(
    c10d::OpType type,
    const char* title,
    std::vector<Operation> operations,
    std::vector<at::Tensor> outputs,
    bool async) {
  if (!async) {
    bool collective = true;
    for (const Operation& operation : operations) {
      collective = collective && !is_transfer(operation);
    }
    const bool ran = collective && collectives_.run_here([&] {
      RECORD_USER_SCOPE(title); // as torch records the works of the others
      for (const Operation& operation : operations) {
        core_->run(operation, core_->record->add(operation, false), nullptr);
      }
    });
    if (ran) {
      return nullptr;
    }
  }
  const uint64_t sequence = operations.empty() ? 0 : operations.back().sequence;
  auto work = c10::make_intrusive<HostWork>(core_->rank, type, title, std::move(outputs), sequence);
  work->expect(static_cast<int>(operations.size()));
  if (operations.empty()) {
    work->expect(1);
    work->end(nullptr); // nobody has its future yet
  }
  for (Operation& operation : operations) {
    const uint64_t number = core_->record->add(operation, async);
    Lane& lane = lane_of(operation);
    lane.push(
        [core = core_, work, number, operation = std::make_shared<Operation>(std::move(operation))]() mutable
            -> Lane::After {
          std::exception_ptr failure;
          int source = -1;
          try {
            core->run(*operation, number, &source);
          } catch (...) {
            failure = std::current_exception();
          }
          if (source >= 0) {
            work->set_source(source);
          }
          operation = nullptr; // who waits may expect its tensors to be free
          return work->end(failure);
        });
  }
  if (!async) {
    work->wait();
    return nullptr;
  }
  return work;
}

} // namespace flagos
