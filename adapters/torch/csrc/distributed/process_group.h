// SPDX-License-Identifier: Apache-2.0
// The backend `flagos` of torch.distributed: tensors on the CPU and on flagos devices, over the engines of comm.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <mutex>

#include "distributed/device_group.h"

namespace flagos {

// A collective of torch: how its work is typed and titled, and the kind of its calls.
struct TorchCollective {
  c10d::OpType type;
  const char* title; // "flagos:" and torch.distributed's name
  FlagosCommKind kind;
  const char* name() const {
    return title + 7;
  }
};

// The tensors of one call. Where the kind has a part for each rank, a list of one tensor holds the parts beside each
// other. The call works in place on a tensor that is in both lists.
struct Arguments {
  at::TensorList send;
  at::TensorList recv;
  int64_t root = FLAGOS_COMM_ANY_RANK;
  const c10d::ReduceOp* reduce = nullptr;
  // Rows of the first dimension for each rank, of an all-to-all of one tensor each way; empty: equal parts.
  at::IntArrayRef send_rows = {};
  at::IntArrayRef recv_rows = {};
};

class ProcessGroupFlagos final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout) : c10d::Backend::Options("flagos", timeout) {}
  };

  ProcessGroupFlagos(
      c10::intrusive_ptr<c10d::Store> store,
      int rank,
      int size,
      std::chrono::milliseconds timeout,
      GroupSettings settings);
  ~ProcessGroupFlagos() override;

  const std::string getBackendName() const override {
    return "flagos";
  }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  bool supportsSplitting() const override {
    return true;
  }
  bool supportsCoalescing() const override {
    return true;
  }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  // As allreduce, of `input` into `output`, which has its type and size.
  WorkPtr allreduce_into(const at::Tensor& output, const at::Tensor& input, const c10d::AllreduceOptions& options);
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options)
      override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options)
      override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options)
      override;
  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int rank, int tag) override;
  WorkPtr recv(Tensors& tensors, int rank, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  void eagerConnectSingleDevice(at::Device device) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

  // The last calls and what is known of the ranks, as JSON.
  std::string state() const;

 private:
  std::chrono::milliseconds timeout_or_default(std::chrono::milliseconds timeout) const;
  // The next collective of the group, without tensors.
  Collective next(FlagosCommKind kind, std::chrono::milliseconds timeout);
  // One call, of tensors on `device`, checked.
  Collective collective(
      const TorchCollective& what,
      const Arguments& arguments,
      c10::Device device,
      std::chrono::milliseconds timeout);
  // Runs the calls that are one collective of torch.
  template <class CallOptions>
  WorkPtr
  run(const TorchCollective& what, const std::vector<Arguments>& calls, Tensors outputs, const CallOptions& options);
  WorkPtr transfer(const TorchCollective& what, Tensors& tensors, int rank, int tag);
  // Runs collectives over tensors of one device.
  WorkPtr issue(
      const TorchCollective& what,
      std::vector<Collective> collectives,
      Tensors outputs,
      c10::Device device,
      bool async);
  bool runs_on_host(c10::Device device) const;
  DeviceGroup& device_group();
  void fail(const std::string& reason);
  // Whether this process is a child of the one that made the group.
  bool forked() const;

  GroupSettings settings_;
  std::chrono::milliseconds timeout_;
  uint64_t made_after_forks_;
  std::shared_ptr<const CommGroup> comm_;
  std::mutex mutex_;
  std::unique_ptr<DeviceGroup> device_;
  std::atomic<uint64_t> collectives_{0};
  std::atomic<uint64_t> transfers_{0};

  bool coalescing_ = false;
  std::vector<Collective> coalesced_;
  Tensors coalesced_outputs_;
  std::optional<c10::Device> coalesced_device_;
};

} // namespace flagos
