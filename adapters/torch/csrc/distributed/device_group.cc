// SPDX-License-Identifier: Apache-2.0
#include "distributed/device_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/mul.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/thread_name.h>

#include <cstdio>

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
    guard()->destroyEvent(end, device.index()); // events outside of graphs go back to the group
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
  std::vector<Collective> collectives; // freed without the lock
  const std::lock_guard<std::mutex> lock(queued_->mutex);
  if (!queued_->done && queued_->end != nullptr) {
    const c10::Stream current = guard()->getStream(queued_->device);
    if (current != queued_->stream) {
      guard()->block(queued_->end, current);
    }
  }
  // From here on the memory may be used again on the current stream, which comes after the work.
  collectives = std::move(queued_->collectives);
  queued_->collectives.clear();
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
    // markCompleted records events on the current streams: they have to be on the stream of the work.
    const DeviceScope device(queued_->device.index());
    const StreamScope stream(queued_->stream);
    future_->markCompleted(at::IValue(outputs_));
  }
  return future_;
}

DeviceGroup::DeviceGroup(std::shared_ptr<const CommGroup> comm, std::string name, int rank)
    : comm_(std::move(comm)), rank_(rank) {
  failure_->group = std::move(name);
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

DeviceGroup::Endpoint& DeviceGroup::endpoint(c10::Device device, int peer, std::chrono::milliseconds timeout) {
  Endpoint& found = endpoints_[{device.index(), peer}];
  if (found.comm == nullptr) {
    Endpoint made;
    check_comm(comm_api->endpoint(
        comm_->get(),
        device.index(),
        peer,
        static_cast<uint64_t>(timeout.count()),
        &made.comm,
        &made.rank,
        &made.size));
    made.stream = guard()->getStreamFromGlobalPool(device, /*isHighPriority=*/false);
    found = made;
  }
  return found;
}

void DeviceGroup::connect(c10::Device device, std::chrono::milliseconds timeout) {
  open_device();
  const DeviceScope scope(device.index());
  const std::lock_guard<std::mutex> lock(issue_mutex_);
  endpoint(device, FLAGOS_COMM_ANY_RANK, timeout);
}

void* DeviceGroup::take_event() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (events_.empty()) {
    return nullptr; // the first record makes one
  }
  void* event = events_.back();
  events_.pop_back();
  return event;
}

// Replaces the senders by copies multiplied by the factor. An address is that of a tensor, or of a part of it.
static void scale_sends(Collective& collective) {
  const std::vector<at::Tensor> given = collective.tensors;
  std::vector<at::Tensor> scaled(given.size());
  for (const void*& address : collective.send) {
    for (size_t i = 0; i < given.size(); ++i) {
      const auto* first = static_cast<const char*>(given[i].const_data_ptr());
      const auto offset = static_cast<const char*>(address) - first;
      if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(given[i].nbytes())) {
        continue;
      }
      if (!scaled[i].defined()) {
        scaled[i] = at::mul(given[i], collective.factor);
        collective.tensors.push_back(scaled[i]);
      }
      address = static_cast<const char*>(scaled[i].const_data_ptr()) + offset;
      break;
    }
  }
}

// Lets the device scale, divide or reduce around the call where the engine lacks the reduction.
static void lower(Collective& collective, const FlagosCommEndpoint* comm, int rank, int size) {
  const FlagosCollective call = collective.view();
  FlagosCommLowered lowered{};
  check_comm(comm_api->lower(comm, &call, &lowered));
  if (lowered.scale_sends != 0) {
    const at::NoGradGuard no_grad;
    scale_sends(collective);
  }
  if (lowered.gathers != 0) {
    collective.gather(rank, size);
  }
  collective.divides = lowered.divide_result != 0;
  collective.reduce = lowered.reduce;
}

void DeviceGroup::submit(
    const Endpoint& end,
    const std::vector<Collective>& collectives,
    bool grouped,
    const c10::Stream& stream) const {
  std::vector<FlagosCollective> calls;
  for (const Collective& collective : collectives) {
    calls.push_back(collective.view());
  }
  check_comm(comm_api->submit(
      end.comm, calls.data(), calls.size(), static_cast<int32_t>(grouped), guard()->getStreamNativeHandle(stream)));
  const StreamScope on(stream);
  for (const Collective& collective : collectives) {
    collective.unstage(end.size);
  }
}

c10::intrusive_ptr<c10d::Work> DeviceGroup::issue(
    c10d::OpType type,
    const char* title,
    std::vector<Collective> collectives,
    std::vector<at::Tensor> outputs,
    c10::Device device,
    bool async,
    bool batched,
    bool blocks_host) {
  failure_->check();
  open_device();
  const DeviceScope scope(device.index());
  const std::lock_guard<std::mutex> lock(issue_mutex_);
  const std::chrono::milliseconds timeout = collectives.empty() ? std::chrono::milliseconds(0) : collectives[0].timeout;
  const uint64_t sequence = collectives.empty() ? 0 : collectives.back().sequence;

  // A transfer outside of a batch concerns two ranks only: they have a communicator of their own.
  const bool pair = !batched && collectives.size() == 1 && is_transfer(collectives[0]);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !pair || collectives[0].root != FLAGOS_COMM_ANY_RANK,
      "flagos: a receive on a device has to name the rank it is from");
  TORCH_CHECK_VALUE(
      !pair || collectives[0].root != rank_,
      "flagos: on a device a rank sends to itself together with the receive only, in one "
      "torch.distributed.batch_isend_irecv");
  Endpoint& end = endpoint(device, pair ? collectives[0].root : FLAGOS_COMM_ANY_RANK, timeout);
  if (pair) {
    collectives[0].root = 1 - end.rank; // in the communicator of the two
  }

  const c10::Stream current = guard()->getStream(device);
  const c10::Stream stream = async ? end.stream : current;
  uint64_t number = 0;
  if (!collectives.empty()) {
    const FlagosCollective last = collectives.back().view();
    check_comm(comm_api->record_begin(comm_->get(), &last, static_cast<int32_t>(async), &number));
  }
  for (Collective& collective : collectives) {
    lower(collective, end.comm, end.rank, end.size);
  }
  const bool capturing = native->is_capturing(device.index());
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
  submit(end, collectives, /*grouped=*/batched || collectives.size() > 1, stream);
  if (capturing && !collectives.empty()) {
    comm_api->record_end(comm_->get(), number, 1); // a graph will run it, and nobody looks for its end
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
  queued->count = collectives.empty() ? 0 : collectives.back().count;
  queued->group = failure_;
  if (async) {
    queued->collectives = std::move(collectives);
  }
  queued->end = capturing ? nullptr : take_event(); // the record makes one of null
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
  comm_api->abort(comm_->get(), FlagosCommSide_Devices, reason.c_str());
}

void DeviceGroup::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.notify_all();
  changed_.wait(lock, [this] { return queued_.empty() || failed(); });
}

void DeviceGroup::fail(const std::string& why) {
  comm_api->report(comm_->get(), why.c_str());
  if (!native->host_computes()) {
    // The device computes wrong results from now on, and the program may never ask this group again. The communicators
    // stay: aborting them would let threads that wait for the device go on.
    std::fprintf(stderr, "[flagos] rank %d: ending the process, because its results cannot be trusted\n", rank_);
    std::fflush(stderr);
    std::abort();
  }
  abort(why);
}

std::string DeviceGroup::look_at(const std::list<std::shared_ptr<Queued>>& pending) {
  for (const auto& item : pending) {
    // Without a current device this thread would open the first one.
    set_current_device(item->device.index());
    static thread_local bool ready = false;
    if (!ready) {
      native->leave_captures_alone();
      ready = true;
    }
    std::vector<Collective> finished; // freed without the lock
    try {
      const std::lock_guard<std::mutex> hold(item->mutex);
      if (guard()->queryEvent(item->end)) {
        item->done = true;
        comm_api->record_end(comm_->get(), item->number, 1);
        finished = std::move(item->collectives);
        item->collectives.clear();
      } else if (item->timeout.count() > 0 && std::chrono::steady_clock::now() > item->deadline) {
        comm_api->record_end(comm_->get(), item->number, 0);
        return item->describe() + ": not done within " + std::to_string(item->timeout.count()) +
            " ms: a rank has not come, or has called something else";
      }
    } catch (const std::exception& error) {
      return item->describe() + ": " + error.what();
    }
  }
  if (comm_api->async_error(comm_->get(), FlagosCommSide_Devices) != FLAGOS_COMM_OK) {
    return "group " + failure_->group + " on rank " + std::to_string(rank_) + ": " + comm_api->last_error();
  }
  return "";
}

void DeviceGroup::watch() {
  c10::setThreadName("flagos_watchdog");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait_for(lock, kLookAfter, [this] { return closing_; });
    if (closing_) {
      return;
    }
    const auto pending = queued_;
    lock.unlock();
    const std::string why = look_at(pending);
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
