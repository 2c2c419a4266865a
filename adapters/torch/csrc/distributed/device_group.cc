// SPDX-License-Identifier: Apache-2.0
#include "distributed/device_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/mul.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/thread_name.h>
#include <dlfcn.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <cstdio>
#include <future>
#include <sstream>

#include "runtime/stream.h"

namespace flagos {

namespace {

const c10::impl::DeviceGuardImplInterface* guard() {
  return c10::impl::getDeviceGuardImpl(kFlagos);
}

// Makes a stream the current one of its device for a scope.
class StreamScope {
 public:
  explicit StreamScope(const c10::Stream& stream) : previous_(guard()->exchangeStream(stream)) {}
  ~StreamScope() {
    guard()->exchangeStream(previous_);
  }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  c10::Stream previous_;
};

constexpr auto kLookAfter = std::chrono::milliseconds(100);

// While a graph is captured anywhere in the process, asking for events is forbidden to threads that have not said
// that they have nothing to do with it (cudaStreamCaptureModeRelaxed).
void leave_captures_alone() {
  using Exchange = int (*)(int*);
  const auto exchange = reinterpret_cast<Exchange>(dlsym(RTLD_DEFAULT, "cudaThreadExchangeStreamCaptureMode"));
  if (exchange != nullptr) {
    int relaxed = 2;
    exchange(&relaxed);
  }
}

} // namespace

void Failure::check() const {
  if (C10_UNLIKELY(happened)) {
    TORCH_CHECK_WITH(DistBackendError, false, why); // written before `happened` was
  }
}

std::string Queued::describe() const {
  return c10::str(
      title, " (sequence ", sequence, ", ", count, " elements) in group ", group->group, " on rank ", group->rank);
}

Queued::~Queued() {
  if (end != nullptr && captured) {
    guard()->destroyEvent(end, device.index()); // the others go back to the group
  }
}

StreamWork::StreamWork(
    int rank,
    c10d::OpType type,
    const char* title,
    std::vector<at::Tensor> outputs,
    uint64_t sequence,
    std::shared_ptr<Queued> queued,
    std::shared_ptr<Failure> failure,
    bool blocks_host)
    : Work(rank, type, title),
      outputs_(std::move(outputs)),
      sequence_(sequence),
      queued_(std::move(queued)),
      failure_(std::move(failure)),
      blocks_host_(blocks_host) {}

bool StreamWork::isCompleted() {
  const std::lock_guard<std::mutex> lock(queued_->mutex);
  return queued_->done || queued_->end == nullptr || queued_->captured || guard()->queryEvent(queued_->end);
}

bool StreamWork::isSuccess() const {
  return !failure_->happened;
}

void StreamWork::synchronize() {
  std::vector<Operation> operations; // freed without the lock
  const std::lock_guard<std::mutex> lock(queued_->mutex);
  if (!queued_->done && queued_->end != nullptr) {
    const c10::Stream current = guard()->getStream(queued_->device);
    if (current != queued_->stream) {
      guard()->block(queued_->end, current);
    }
  }
  // From here on the memory may be used again on the current stream, which comes after the work.
  operations = std::move(queued_->operations);
  queued_->operations.clear();
}

bool StreamWork::wait(std::chrono::milliseconds timeout) {
  failure_->check();
  synchronize();
  if (!blocks_host_ && timeout == kNoTimeout) {
    return true;
  }
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!isCompleted()) {
    failure_->check();
    TORCH_CHECK_WITH(
        DistBackendError,
        timeout == kNoTimeout || std::chrono::steady_clock::now() < deadline,
        queued_->describe(),
        ": not done within ",
        timeout.count(),
        " ms");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  failure_->check();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> StreamWork::getFuture() {
  const std::lock_guard<std::mutex> lock(future_mutex_);
  if (future_ == nullptr) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{queued_->device});
    // It records where the current streams are: that has to be the stream of the work, not the caller's.
    const DeviceScope device(queued_->device.index());
    const StreamScope stream(queued_->stream);
    future_->markCompleted(at::IValue(outputs_));
  }
  return future_;
}

DeviceGroup::DeviceGroup(
    CommSettings settings,
    c10::intrusive_ptr<c10d::Store> store,
    int rank,
    int size,
    std::shared_ptr<Record> record,
    std::string folder)
    : settings_(std::move(settings)),
      store_(std::move(store)),
      rank_(rank),
      size_(size),
      record_(std::move(record)),
      folder_(std::move(folder)) {
  failure_->group = settings_.group;
  failure_->rank = rank_;
  watchdog_ = std::thread([this] { watch(); });
}

DeviceGroup::~DeviceGroup() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  watchdog_.join();
}

std::shared_ptr<Comm> DeviceGroup::connect_within(
    const std::string& key,
    c10::Device device,
    int rank,
    int size,
    std::chrono::milliseconds timeout) {
  auto store = c10::make_intrusive<c10d::PrefixStore>("comm/" + key + "/", store_);
  store->set("here/" + std::to_string(rank), std::string("1"));
  // A library that waits for a missing rank cannot be told to stop, so it waits in a thread of its own.
  auto connect = std::make_shared<std::packaged_task<std::shared_ptr<Comm>()>>(
      [settings = settings_, store, rank, size, timeout, index = device.index()] {
        const DeviceScope scope(index);
        return std::make_shared<Comm>(settings, native.vendor, store, rank, size, timeout);
      });
  auto connected = connect->get_future();
  std::thread([connect] { (*connect)(); }).detach();
  if (connected.wait_for(timeout) == std::future_status::ready) {
    return connected.get();
  }
  std::ostringstream missing;
  for (int other = 0; other < size; ++other) {
    if (!store->check({"here/" + std::to_string(other)})) {
      missing << (missing.tellp() > 0 ? ", " : "") << other;
    }
  }
  TORCH_CHECK_WITH(
      DistBackendError,
      false,
      "group ",
      settings_.group,
      " on rank ",
      rank,
      ": ",
      size,
      " ranks were not connected within ",
      timeout.count(),
      " ms; not here: ",
      missing.tellp() > 0 ? "rank " + missing.str() : std::string("none, so the library itself hangs"));
}

DeviceGroup::Endpoint& DeviceGroup::endpoint(
    const std::string& key,
    c10::Device device,
    int rank,
    int size,
    std::chrono::milliseconds timeout) {
  const std::string name = key + "@" + std::to_string(device.index());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = endpoints_.find(name);
    if (found != endpoints_.end()) {
      return found->second;
    }
  }
  Endpoint made;
  made.comm = connect_within(key, device, rank, size, timeout);
  TORCH_CHECK(made.comm->on_streams(), "flagos: the engine ", made.comm->engine(), " does not queue work on streams");
  made.engine = made.comm->engine();
  made.stream = guard()->getStreamFromGlobalPool(device, /*isHighPriority=*/false);
  const std::lock_guard<std::mutex> lock(mutex_);
  return endpoints_.emplace(name, std::move(made)).first->second;
}

void DeviceGroup::connect(c10::Device device, std::chrono::milliseconds timeout) {
  open_device();
  const DeviceScope scope(device.index());
  const std::lock_guard<std::mutex> lock(issue_mutex_);
  endpoint("all", device, rank_, size_, timeout);
}

void* DeviceGroup::take_event() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (events_.empty()) {
    return nullptr; // made by the first record
  }
  void* event = events_.back();
  events_.pop_back();
  return event;
}

// Multiplies what goes out by the factor, in memory of its own. An address is that of a tensor, or of a part of it.
static void scale_sends(Operation& operation) {
  const std::vector<at::Tensor> given = operation.tensors;
  std::vector<at::Tensor> scaled(given.size());
  for (const void*& address : operation.send) {
    for (size_t i = 0; i < given.size(); ++i) {
      const auto* first = static_cast<const char*>(given[i].const_data_ptr());
      const auto offset = static_cast<const char*>(address) - first;
      if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(given[i].nbytes())) {
        continue;
      }
      if (!scaled[i].defined()) {
        scaled[i] = at::mul(given[i], operation.factor);
        operation.tensors.push_back(scaled[i]);
      }
      address = static_cast<const char*>(scaled[i].const_data_ptr()) + offset;
      break;
    }
  }
}

// What a library lacks is computed before and after it.
void DeviceGroup::lower(Operation& operation, const std::string& engine) const {
  const at::NoGradGuard no_grad;
  if (operation.reduce == FlagosCommReduce_PremulSum && engine != "nccl") {
    scale_sends(operation);
    operation.reduce = FlagosCommReduce_Sum;
  } else if (operation.reduce == FlagosCommReduce_Avg && engine == "hccl") {
    operation.reduce = FlagosCommReduce_Sum;
    if (operation.kind != FlagosCommKind_Reduce || operation.root == rank_) {
      operation.averaged.push_back(operation.result);
    }
  }
}

c10::intrusive_ptr<c10d::Work> DeviceGroup::issue(
    c10d::OpType type,
    const char* title,
    std::vector<Operation> operations,
    std::vector<at::Tensor> outputs,
    c10::Device device,
    bool async,
    bool batched,
    bool blocks_host) {
  failure_->check();
  open_device();
  const DeviceScope scope(device.index());
  const std::lock_guard<std::mutex> lock(issue_mutex_);
  const std::chrono::milliseconds timeout = operations.empty() ? std::chrono::milliseconds(0) : operations[0].timeout;
  const uint64_t sequence = operations.empty() ? 0 : operations.back().sequence;

  // A transfer outside of a batch concerns two ranks only: they have a communicator of their own.
  const bool pair = !batched && operations.size() == 1 && is_transfer(operations[0]);
  std::string key = "all";
  int rank = rank_;
  int size = size_;
  if (pair) {
    const int peer = operations[0].root;
    const int low = std::min(rank_, peer);
    key = std::to_string(low) + "-" + std::to_string(std::max(rank_, peer));
    rank = rank_ == low ? 0 : 1;
    size = 2;
    operations[0].root = 1 - rank;
  }
  Endpoint& end = endpoint(key, device, rank, size, timeout);

  const c10::Stream current = guard()->getStream(device);
  const c10::Stream stream = async ? end.stream : current;
  const uint64_t number = operations.empty() ? 0 : record_->add(operations.back(), async);
  for (Operation& operation : operations) {
    lower(operation, end.engine);
  }
  const bool capturing = native.cuda && is_capturing(device.index());
  void* ready = capturing ? nullptr : end.ready;
  if (async) {
    guard()->record(&ready, current, device.index(), c10::EventFlag::PYTORCH_DEFAULT);
    guard()->block(ready, stream);
    if (capturing) {
      guard()->destroyEvent(ready, device.index());
    } else {
      end.ready = ready;
    }
  }
  const bool grouped = batched || operations.size() > 1;
  void* handle = guard()->getStreamNativeHandle(stream);
  if (grouped) {
    check_comm(comm_api->group_start(end.comm->get()));
  }
  int32_t status = FLAGOS_COMM_OK;
  for (const Operation& operation : operations) {
    const FlagosCollective call = operation.view();
    status = comm_api->run(end.comm->get(), &call, handle);
    if (status != FLAGOS_COMM_OK) {
      break;
    }
  }
  if (status != FLAGOS_COMM_OK) {
    std::exception_ptr failure;
    try {
      raise_comm(status);
    } catch (...) {
      failure = std::current_exception();
    }
    if (grouped) {
      comm_api->group_end(end.comm->get()); // or this thread's next calls would wait in the group
    }
    std::rethrow_exception(failure);
  }
  if (grouped) {
    check_comm(comm_api->group_end(end.comm->get()));
  }
  {
    const StreamScope on(stream);
    for (const Operation& operation : operations) {
      operation.unstage(size);
    }
  }

  auto queued = std::make_shared<Queued>();
  queued->device = device;
  queued->stream = stream;
  queued->number = number;
  queued->timeout = timeout;
  queued->deadline = std::chrono::steady_clock::now() + timeout;
  queued->captured = capturing;
  queued->title = title;
  queued->sequence = sequence;
  queued->count = operations.empty() ? 0 : operations.back().count;
  queued->group = failure_;
  if (async) {
    queued->operations = std::move(operations);
  }
  queued->end = capturing ? nullptr : take_event(); // null: made by the record
  guard()->record(&queued->end, stream, device.index(), c10::EventFlag::PYTORCH_DEFAULT);
  if (!capturing) {
    const std::lock_guard<std::mutex> queue(mutex_);
    queued_.push_back(queued);
  }
  if (!async && !blocks_host) {
    return nullptr;
  }
  auto work = c10::make_intrusive<StreamWork>(
      rank_, type, title, std::move(outputs), sequence, std::move(queued), failure_, blocks_host);
  if (!async) {
    work->wait(kNoTimeout);
    return nullptr;
  }
  return work;
}

void DeviceGroup::abort(const std::string& reason) {
  {
    const std::lock_guard<std::mutex> lock(failure_->mutex);
    if (!failure_->happened) {
      failure_->why = reason;
      failure_->happened = true;
    }
  }
  std::vector<std::shared_ptr<Comm>> comms;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, endpoint] : endpoints_) {
      comms.push_back(endpoint.comm);
    }
  }
  for (const auto& comm : comms) {
    comm->abort(reason);
  }
}

void DeviceGroup::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.notify_all();
  changed_.wait(lock, [this] { return queued_.empty() || failed(); });
}

std::string DeviceGroup::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text = "[";
  for (const auto& [name, endpoint] : endpoints_) {
    text += (text.size() > 1 ? ", " : "") + endpoint.comm->state();
  }
  return text + "]";
}

void DeviceGroup::fail(const std::string& why) {
  record_->dump(folder_, settings_.group, rank_, state(), why);
  if (native.cuda) {
    // What the device computes from now on is wrong, and the program may not ask this group again. Nothing is given up
    // before the end: who waits for the device must not go on.
    std::fprintf(stderr, "[flagos] rank %d: ending the process, because its results cannot be trusted\n", rank_);
    std::fflush(stderr);
    std::abort();
  }
  abort(why);
}

void DeviceGroup::watch() {
  c10::setThreadName("flagos_watchdog");
  bool ready = false;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait_for(lock, kLookAfter, [this] { return closing_; });
    if (closing_) {
      return;
    }
    auto pending = queued_;
    std::vector<std::shared_ptr<Comm>> comms;
    for (const auto& [name, endpoint] : endpoints_) {
      comms.push_back(endpoint.comm);
    }
    lock.unlock();
    std::string why;
    std::vector<Operation> finished;
    for (const auto& item : pending) {
      // Otherwise this thread would open the first device, whichever one is used.
      set_current_device(item->device.index());
      if (native.cuda && !ready) {
        leave_captures_alone();
        ready = true;
      }
      try {
        const std::lock_guard<std::mutex> hold(item->mutex);
        if (guard()->queryEvent(item->end)) {
          item->done = true;
          record_->done(item->number, true);
          std::move(item->operations.begin(), item->operations.end(), std::back_inserter(finished));
          item->operations.clear();
        } else if (item->timeout.count() > 0 && std::chrono::steady_clock::now() > item->deadline) {
          record_->done(item->number, false);
          why = item->describe() + ": not done within " + std::to_string(item->timeout.count()) +
              " ms: a rank has not come, or has called something else";
        }
      } catch (const std::exception& error) {
        why = item->describe() + ": " + error.what();
      }
      if (!why.empty()) {
        break;
      }
    }
    finished.clear();
    for (const auto& comm : comms) {
      if (why.empty() && comm_api->async_error(comm->get()) != FLAGOS_COMM_OK) {
        why = "group " + settings_.group + " on rank " + std::to_string(rank_) + ": " + comm_api->last_error();
      }
    }
    if (!why.empty() && !failed()) {
      fail(why);
    }
    lock.lock();
    queued_.remove_if([this](const std::shared_ptr<Queued>& item) {
      const std::lock_guard<std::mutex> hold(item->mutex);
      if (item->done && item->end != nullptr) {
        events_.push_back(item->end);
        item->end = nullptr;
      }
      return item->done;
    });
    if (failed()) {
      queued_.clear();
    }
    changed_.notify_all();
  }
}

} // namespace flagos
