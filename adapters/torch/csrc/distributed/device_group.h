// SPDX-License-Identifier: Apache-2.0
// Collectives of an engine that queues them on streams (NCCL and others): streams and events of torch, a watchdog
// for what was queued.
//
// Everything goes through torch's guard of the flagos device, or of the native device beneath it: nothing here needs a
// vendor's headers or libraries.
#pragma once

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "distributed/collective.h"

namespace flagos {

struct Failure;

// Work on a stream: the event at its end, and the tensors that stay alive until then.
struct Queued {
  Queued() = default;
  ~Queued();
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;

  std::mutex mutex;
  c10::Device device{c10::DeviceType::CPU};
  c10::Stream stream{c10::Stream::DEFAULT, c10::Device(c10::DeviceType::CPU)};
  void* end = nullptr;   // an event
  bool captured = false; // part of a graph: the event cannot be asked
  std::vector<Collective> collectives;
  bool done = false;
  std::chrono::steady_clock::time_point deadline;
  std::chrono::milliseconds timeout{0};
  uint64_t number = 0; // in the flight recorder
  const char* title = "";
  uint64_t sequence = 0;
  uint64_t count = 0;
  std::shared_ptr<const Failure> group;
  std::string describe() const;
};

// Whether a group has failed, and why.
struct Failure {
  std::atomic<bool> happened{false};
  std::mutex mutex;
  std::string why;
  std::string group;
  int rank = 0;
  void check() const; // throws
};

class StreamWork final : public c10d::Work {
 public:
  StreamWork(
      int rank,
      c10d::OpType type,
      const char* title,
      std::vector<at::Tensor> outputs,
      uint64_t sequence,
      std::shared_ptr<Queued> queued,
      std::shared_ptr<Failure> failure,
      bool blocks_host);

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void blockCurrentStream() override {
    synchronize();
  }
  std::vector<at::Tensor> result() override {
    return outputs_;
  }
  uint64_t getSequencenumber() const override {
    return sequence_;
  }
  // Is complete at once: callbacks run on the stream of the work, and waiting lets the current stream wait.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<at::Tensor> outputs_;
  uint64_t sequence_;
  std::shared_ptr<Queued> queued_;
  std::shared_ptr<Failure> failure_;
  bool blocks_host_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class DeviceGroup {
 public:
  DeviceGroup(std::shared_ptr<const CommGroup> comm, std::string name, int rank);
  ~DeviceGroup();

  // Connects the communicator of all ranks on `device`. Calls do so by themselves.
  void connect(c10::Device device, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Work> issue(
      c10d::OpType type,
      const char* title,
      std::vector<Collective> collectives,
      std::vector<at::Tensor> outputs,
      c10::Device device,
      bool async,
      bool batched,
      bool blocks_host);

  bool failed() const {
    return failure_->happened;
  }
  void abort(const std::string& reason);
  // Waits until everything that was queued is done, or failed.
  void drain();

 private:
  // A communicator on a device, and the stream of its asynchronous calls.
  struct Endpoint {
    const FlagosCommEndpoint* comm = nullptr;
    int rank = 0; // in the communicator
    int size = 0;
    c10::Stream stream{c10::Stream::DEFAULT, c10::Device(c10::DeviceType::CPU)};
    void* ready = nullptr;
  };
  // The communicator of all ranks (`peer` is FLAGOS_COMM_ANY_RANK), or of this one and `peer`.
  Endpoint& endpoint(c10::Device device, int peer, std::chrono::milliseconds timeout);
  void submit(const Endpoint& end, const std::vector<Collective>& collectives, bool grouped, const c10::Stream& stream)
      const;
  void* take_event();
  void watch();
  // Marks the calls that are done. Returns why the group has failed, or an empty text.
  std::string look_at(const std::list<std::shared_ptr<Queued>>& pending);
  void fail(const std::string& why);

  std::shared_ptr<const CommGroup> comm_;
  int rank_;

  std::mutex issue_mutex_;
  std::map<std::pair<c10::DeviceIndex, int>, Endpoint> endpoints_; // by device and peer
  std::mutex mutex_;
  std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  std::list<std::shared_ptr<Queued>> queued_;
  std::vector<void*> events_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread watchdog_;
};

} // namespace flagos
