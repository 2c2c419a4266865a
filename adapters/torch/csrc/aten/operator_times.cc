// SPDX-License-Identifier: Apache-2.0
// Every thread adds up its own calls, behind a lock that only a reader contends for.
#include "aten/operator_times.h"

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "aten/alias.h"

namespace flagos {

namespace {

// Nanoseconds. `own` leaves out the operators of flagos tensors that a call calls itself.
struct Times {
  int64_t calls = 0;
  int64_t total = 0;
  int64_t own = 0;

  void add(const Times& more) {
    calls += more.calls;
    total += more.total;
    own += more.own;
  }
};

using Table = std::unordered_map<c10::OperatorName, Times>;

void add_all(Table& sum, const Table& more) {
  for (const auto& [name, times] : more) {
    sum[name].add(times);
  }
}

struct ThreadTimes {
  std::mutex mutex;
  Table table;
};

struct AllTimes {
  std::mutex mutex;
  Table of_ended_threads;
  std::vector<std::shared_ptr<ThreadTimes>> threads;
};

// Never destroyed: threads may outlive the end of `main`.
AllTimes& all_times() {
  static AllTimes* all = new AllTimes;
  return *all;
}

// A thread's part of `all_times`, as long as the thread lives.
class Membership {
 public:
  Membership() : own_(std::make_shared<ThreadTimes>()) {
    AllTimes& all = all_times();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.threads.push_back(own_);
  }
  ~Membership() {
    AllTimes& all = all_times();
    const std::lock_guard<std::mutex> lock(all.mutex);
    add_all(all.of_ended_threads, own_->table);
    all.threads.erase(std::remove(all.threads.begin(), all.threads.end(), own_), all.threads.end());
  }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  void add(const c10::OperatorName& name, const Times& times) {
    const std::lock_guard<std::mutex> lock(own_->mutex);
    own_->table[name].add(times);
  }

 private:
  std::shared_ptr<ThreadTimes> own_;
};

// A forked child inherits locks that a thread of its parent may have held, so it times nothing.
std::atomic<bool> forked{false};

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct TimedCall;
thread_local TimedCall* innermost = nullptr;

struct TimedCall final : at::ObserverContext {
  explicit TimedCall(c10::OperatorName called)
      : name(std::move(called)),
        around(innermost),
        below_autocast(c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastPrivateUse1)),
        by_autocast(below_autocast && around != nullptr && !around->below_autocast && around->name == name),
        began(now()) {
    innermost = this;
  }
  ~TimedCall() override {
    if (innermost == this) {
      innermost = around;
    }
  }

  c10::OperatorName name;
  TimedCall* around;
  bool below_autocast;
  bool by_autocast;   // the same call with what autocast has cast, or left as it was
  int64_t within = 0; // of the calls that this one made
  int64_t began;
};

bool is_of_flagos(const c10::IValue& value) {
  if (value.isTensor()) {
    return value.toTensor().defined() && is_flagos(value.toTensor());
  }
  if (value.isDevice()) { // of an operator that makes a tensor
    return value.toDevice().type() == kFlagos;
  }
  if (value.isTensorList()) {
    const c10::List<at::Tensor> list = value.toTensorList();
    return !list.empty() && list.get(0).defined() && is_flagos(list.get(0));
  }
  return false;
}

std::unique_ptr<at::ObserverContext> begin_call(const at::RecordFunction& function) {
  if (forked.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  const c10::ArrayRef<const c10::IValue> inputs = function.inputs();
  if (std::none_of(inputs.begin(), inputs.end(), is_of_flagos)) {
    return nullptr;
  }
  std::optional<c10::OperatorName> name = function.operator_name();
  return name.has_value() ? std::make_unique<TimedCall>(*std::move(name)) : nullptr;
}

void end_call(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  if (context == nullptr || forked.load(std::memory_order_relaxed)) {
    return;
  }
  auto* call = static_cast<TimedCall*>(context);
  const int64_t took = now() - call->began;
  if (call->around != nullptr) {
    call->around->within += took;
  }
  thread_local Membership membership;
  membership.add(call->name, {call->by_autocast ? 0 : 1, call->by_autocast ? 0 : took, took - call->within});
}

void time_operators() {
  static const int begun = [] {
    TORCH_CHECK(pthread_atfork(nullptr, nullptr, [] { forked = true; }) == 0, "flagos: out of memory");
    at::addGlobalCallback(
        at::RecordFunctionCallback(&begin_call, &end_call).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    return 0;
  }();
  (void)begun;
}

std::tuple<std::vector<std::string>, std::vector<int64_t>> operator_times() {
  TORCH_CHECK(!forked, "flagos: a forked process times no operators");
  Table sum;
  {
    AllTimes& all = all_times();
    const std::lock_guard<std::mutex> lock(all.mutex);
    add_all(sum, all.of_ended_threads);
    for (const std::shared_ptr<ThreadTimes>& thread : all.threads) {
      const std::lock_guard<std::mutex> lock_thread(thread->mutex);
      add_all(sum, thread->table);
    }
  }
  std::vector<std::string> names;
  std::vector<int64_t> numbers;
  for (const auto& [name, times] : sum) {
    names.push_back(c10::toString(name));
    numbers.insert(numbers.end(), {times.calls, times.total, times.own});
  }
  return {std::move(names), std::move(numbers)};
}

} // namespace

void register_operator_times(torch::Library& library) {
  // From the next call on, in every thread, until the process ends. Not while other threads call operators.
  library.def("time_operators() -> ()", &time_operators);
  // Operators with flagos tensors or for a flagos device, also those that torch composes: their names, and for each
  // name the calls that ended, the nanoseconds in them, and those without calls of other such operators in them.
  library.def("operator_times() -> (str[] names, int[] numbers)", &operator_times);
}

} // namespace flagos
