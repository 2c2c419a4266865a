// SPDX-License-Identifier: Apache-2.0
#include "distributed/process_group.h"

#include <pthread.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <thread>

#include "distributed/host_calls.h"
#include "runtime/pending.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

using c10d::OpType;

// Forks between this process and the first one that made a group.
std::atomic<uint64_t> forks{0};

uint64_t count_forks() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  TORCH_CHECK(watched == 0, "flagos: forks cannot be watched");
  return forks;
}

} // namespace

ProcessGroupFlagos::ProcessGroupFlagos(
    c10::intrusive_ptr<c10d::Store> store,
    int rank,
    int size,
    std::chrono::milliseconds timeout,
    GroupSettings settings)
    : Backend(rank, size),
      settings_(std::move(settings)),
      timeout_(timeout),
      made_after_forks_(count_forks()),
      comm_(std::make_shared<const CommGroup>(settings_, store, rank, size, timeout)) {
  init();
}

ProcessGroupFlagos::~ProcessGroupFlagos() {
  if (forked()) {
    // The child has no threads of the group, and its locks are as the parent's threads held them: freeing would hang.
    static_cast<void>(device_.release());
    static_cast<void>(new std::shared_ptr<const CommGroup>(std::move(comm_)));
  }
}

bool ProcessGroupFlagos::forked() const {
  return forks != made_after_forks_;
}

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupFlagos::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(timeout_);
  options->group_name = settings_.group;
  options->global_ranks_in_group = settings_.global_ranks;
  return options;
}

void ProcessGroupFlagos::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
}

DeviceGroup& ProcessGroupFlagos::device_group() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (device_ == nullptr) {
    device_ = std::make_unique<DeviceGroup>(comm_, settings_.group, rank_);
  }
  return *device_;
}

std::chrono::milliseconds ProcessGroupFlagos::timeout_or_default(std::chrono::milliseconds timeout) const {
  return timeout == c10d::kUnsetTimeout || timeout.count() <= 0 ? timeout_ : timeout;
}

Collective ProcessGroupFlagos::next(FlagosCommKind kind, std::chrono::milliseconds timeout) {
  Collective collective;
  collective.kind = kind;
  collective.sequence = ++collectives_;
  collective.timeout = timeout_or_default(timeout);
  return collective;
}

// The engine that the description of the vendor names; empty if none.
static const std::string& vendors_engine() {
  static const std::string engine = [] {
    FlagosVendorInfo vendor{};
    vendor.struct_size = sizeof(vendor);
    check(core->vendor(&vendor));
    return std::string(vendor.collective_engine == nullptr ? "" : vendor.collective_engine);
  }();
  return engine;
}

// Collectives of the host serve memory that is the host's, or is copied there where the device's vendor names no
// engine.
bool ProcessGroupFlagos::runs_on_host(c10::Device device) const {
  if (device.is_cpu()) {
    return true;
  }
  if (native->owned_by_torch) {
    return false;
  }
  const std::string& asked = settings_.engine;
  const std::string& engine = asked.empty() || asked == "auto" ? vendors_engine() : asked;
  return engine.empty() || engine == "shm";
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::issue(
    const TorchCollective& what,
    std::vector<Collective> collectives,
    Tensors outputs,
    c10::Device device,
    bool async) {
  launch_pending("a collective");
  for (const at::Tensor& output : outputs) { // on a stream of the group
    lend_memory_of(output);
  }
  for (const Collective& collective : collectives) {
    for (const at::Tensor& tensor : collective.tensors) {
      lend_memory_of(tensor);
    }
  }
  TORCH_CHECK_VALUE(
      device.is_cpu() || device.type() == kFlagos,
      "flagos: the backend flagos serves tensors on the CPU and on flagos devices, not on ",
      device);
  TORCH_CHECK_WITH(
      DistBackendError,
      !forked(),
      "flagos: group ",
      settings_.group,
      " belongs to the process that forked this one: call init_process_group() in the child, or start it with the "
      "method \"spawn\"");
  if (coalescing_) {
    TORCH_CHECK_VALUE(
        !coalesced_device_.has_value() || *coalesced_device_ == device,
        "flagos: calls that are coalesced must be on one device, got ",
        *coalesced_device_,
        " and ",
        device);
    coalesced_device_ = device;
    std::move(collectives.begin(), collectives.end(), std::back_inserter(coalesced_));
    std::move(outputs.begin(), outputs.end(), std::back_inserter(coalesced_outputs_));
    return nullptr;
  }
  if (runs_on_host(device)) {
    if (!device.is_cpu()) {
      drain_current_stream(device.index()); // earlier work on the stream comes first
    }
    return issue_on_host(
        *comm_, rank_, size_, what.type, what.title, std::move(collectives), std::move(outputs), async);
  }
  return device_group().issue(
      what.type,
      what.title,
      std::move(collectives),
      std::move(outputs),
      device,
      async,
      /*batched=*/what.type == OpType::COALESCED,
      /*blocks_host=*/what.type == OpType::BARRIER);
}

void ProcessGroupFlagos::startCoalescing() {
  TORCH_CHECK(!coalescing_, "flagos: calls are being coalesced already");
  coalescing_ = true;
  coalesced_.clear();
  coalesced_outputs_.clear();
  coalesced_device_.reset();
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::endCoalescing() {
  TORCH_CHECK(coalescing_, "flagos: no calls are being coalesced");
  coalescing_ = false;
  auto collectives = std::move(coalesced_);
  auto outputs = std::move(coalesced_outputs_);
  coalesced_.clear();
  coalesced_outputs_.clear();
  if (collectives.empty()) {
    return nullptr;
  }
  check_transfers_to_self(collectives, rank_);
  return issue(
      {OpType::COALESCED, "flagos:coalesced", FlagosCommKind_Barrier},
      std::move(collectives),
      std::move(outputs),
      *coalesced_device_,
      /*async=*/true);
}

void ProcessGroupFlagos::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
  check_comm(comm_api->monitored_barrier(comm_->get(), timeout.count(), static_cast<int32_t>(wait_for_all)));
}

uint64_t ProcessGroupFlagos::getSequenceNumberForGroup() {
  return collectives_;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupFlagos::split(
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) {
    return nullptr;
  }
  GroupSettings settings = settings_;
  if (!options->group_name.empty()) {
    settings.group = options->group_name;
  }
  settings.global_ranks.clear();
  for (const int rank : ranks) {
    const bool known = static_cast<size_t>(rank) < settings_.global_ranks.size();
    settings.global_ranks.push_back(known ? settings_.global_ranks[rank] : static_cast<uint64_t>(rank));
  }
  // torch gives all parts of a group one store.
  std::string part = "part";
  for (const int rank : ranks) {
    part += "." + std::to_string(rank);
  }
  return c10::make_intrusive<ProcessGroupFlagos>(
      c10::make_intrusive<c10d::PrefixStore>(part + "/", store),
      static_cast<int>(mine - ranks.begin()),
      static_cast<int>(ranks.size()),
      options->timeout,
      std::move(settings));
}

void ProcessGroupFlagos::eagerConnectSingleDevice(at::Device device) {
  if (device.type() == kFlagos && native->owned_by_torch) {
    device_group().connect(device, timeout_);
  }
}

c10d::ErrorType ProcessGroupFlagos::getError() {
  if (device_ != nullptr && device_->failed()) {
    return c10d::ErrorType::COMM_ERROR;
  }
  if (comm_api->async_error(comm_->get(), FlagosCommSide_Host) != FLAGOS_COMM_OK) {
    return c10d::ErrorType::REMOTE_ERROR;
  }
  return c10d::ErrorType::SUCCESS;
}

void ProcessGroupFlagos::fail(const std::string& reason) {
  if (forked()) {
    return; // the group is the parent's, and goes on
  }
  comm_api->abort(comm_->get(), FlagosCommSide_Host, reason.c_str());
  if (device_ != nullptr) {
    device_->abort(reason);
  }
}

void ProcessGroupFlagos::abort() {
  fail("abort() was called on rank " + std::to_string(rank_));
}

void ProcessGroupFlagos::shutdown() {
  if (device_ != nullptr && !forked()) {
    device_->drain();
  }
}

std::string ProcessGroupFlagos::state() const {
  return comm_->state();
}

} // namespace flagos
