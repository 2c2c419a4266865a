// SPDX-License-Identifier: Apache-2.0
// Every collective of torch is a TorchCollective with lists of tensors, checked and run in one way.
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "distributed/process_group.h"
#include "distributed/sparse_reduction.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

using c10d::OpType;

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* name) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "flagos: ", name, " takes one tensor a rank, got ", tensors.size());
  return tensors[0];
}

// Refuses tensors without dense memory, and those on another device.
void check_tensor(const at::Tensor& tensor, c10::Device device, const char* what) {
  TORCH_CHECK_VALUE(
      tensor.layout() == c10::kStrided,
      "flagos: ",
      what,
      " takes dense tensors, got one of layout ",
      tensor.layout(),
      ": call to_dense() first");
  TORCH_CHECK_VALUE(
      tensor.device() == device, "flagos: ", what, " got tensors on ", device, " and on ", tensor.device());
}

void check_like(const at::Tensor& tensor, const at::Tensor& first, const char* what) {
  check_tensor(tensor, first.device(), what);
  TORCH_CHECK_VALUE(
      tensor.scalar_type() == first.scalar_type() && tensor.numel() == first.numel(),
      "flagos: ",
      what,
      " needs parts of one type and size, got ",
      tensor.numel(),
      " x ",
      tensor.scalar_type(),
      " beside ",
      first.numel(),
      " x ",
      first.scalar_type());
}

void check_type(const at::Tensor& tensor, const at::Tensor& first, const char* what) {
  check_tensor(tensor, first.device(), what);
  TORCH_CHECK_VALUE(
      tensor.scalar_type() == first.scalar_type(),
      "flagos: ",
      what,
      " needs tensors of one type, got ",
      first.scalar_type(),
      " and ",
      tensor.scalar_type());
}

// Whether parts differ in size, which no engine takes in one call.
bool is_uneven(const std::vector<at::Tensor>& parts) {
  return std::any_of(
      parts.begin(), parts.end(), [&](const at::Tensor& part) { return part.numel() != parts[0].numel(); });
}

// Checks that `whole` is `size` parts; its first dimension need not be a multiple of `size`.
void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* what) {
  check_tensor(whole, part.device(), what);
  TORCH_CHECK_VALUE(
      whole.scalar_type() == part.scalar_type() && whole.numel() == part.numel() * size,
      "flagos: ",
      what,
      " over ",
      size,
      " ranks needs ",
      size,
      " x ",
      part.numel(),
      " elements of ",
      part.scalar_type(),
      ", got ",
      whole.numel(),
      " of ",
      whole.scalar_type());
}

// The one list of tensors, one for each rank.
const std::vector<at::Tensor>&
only_list(const std::vector<std::vector<at::Tensor>>& lists, int size, const char* what, const char* where = "") {
  TORCH_CHECK_VALUE(
      lists.size() == 1 && lists[0].size() == static_cast<size_t>(size),
      "flagos: ",
      what,
      " needs one list of ",
      size,
      " tensors",
      where);
  return lists[0];
}

void check_pairs(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs, const char* what) {
  TORCH_CHECK_VALUE(
      !inputs.empty() && outputs.size() == inputs.size(),
      "flagos: ",
      what,
      " got ",
      inputs.size(),
      " inputs and ",
      outputs.size(),
      " outputs");
}

// Elements for each rank of a tensor that is cut along its first dimension, in the units of `Collective::count`.
std::vector<uint64_t> counts_of_rows(const at::Tensor& tensor, at::IntArrayRef rows_each, int size, const char* what) {
  const uint64_t whole = count_of(tensor);
  std::vector<uint64_t> counts(size);
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  if (rows_each.empty()) {
    TORCH_CHECK_VALUE(
        rows % size == 0, "flagos: the first dimension of the ", what, " (", rows, ") is not a multiple of ", size);
    std::fill(counts.begin(), counts.end(), whole / size);
    return counts;
  }
  int64_t sum = 0;
  for (const int64_t part : rows_each) {
    TORCH_CHECK_VALUE(part >= 0, "flagos: a negative split size, ", part);
    sum += part;
  }
  TORCH_CHECK_VALUE(
      rows_each.size() == static_cast<size_t>(size) && sum == rows,
      "flagos: the split sizes of the ",
      what,
      " are ",
      rows_each.size(),
      " with a sum of ",
      sum,
      "; ",
      size,
      " with a sum of ",
      rows,
      " are needed");
  for (int i = 0; i < size; ++i) {
    counts[i] = rows == 0 ? 0 : static_cast<uint64_t>(rows_each[i]) * (whole / static_cast<uint64_t>(rows));
  }
  return counts;
}

// Replaces the address of a whole, possibly that of a staged copy, by those of its parts.
template <class Address>
void cut(std::vector<Address>& addresses, const std::vector<uint64_t>& counts, uint64_t element) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Address>>, const char, char>;
  auto* part = static_cast<Byte*>(addresses.back());
  addresses.pop_back();
  for (const uint64_t count : counts) {
    addresses.push_back(part);
    part += count * element;
  }
}

bool sends_parts(FlagosCommKind kind) {
  return kind == FlagosCommKind_Scatter || kind == FlagosCommKind_ReduceScatter || kind == FlagosCommKind_AllToAll;
}

bool receives_parts(FlagosCommKind kind) {
  return kind == FlagosCommKind_Gather || kind == FlagosCommKind_AllGather || kind == FlagosCommKind_AllToAll;
}

} // namespace

Collective ProcessGroupFlagos::collective(
    const TorchCollective& what,
    const Arguments& arguments,
    c10::Device device,
    std::chrono::milliseconds timeout) {
  const char* name = what.name();
  // A list with a tensor for each part is checked against this one.
  const at::Tensor& part = receives_parts(what.kind) ? arguments.send[0] : arguments.recv[0];
  check_tensor(part, device, name);
  Collective call = next(what.kind, timeout);
  call.on_host = runs_on_host(device);
  call.root = static_cast<int>(arguments.root);
  if (arguments.reduce != nullptr) {
    set_reduction(call, *arguments.reduce);
  }
  call.part_of(part);
  if (arguments.send.size() == 1 && arguments.recv.size() == 1 && arguments.send[0].is_same(arguments.recv[0])) {
    call.add_both(part);
    if (what.kind == FlagosCommKind_Reduce && call.root != rank_) {
      call.staged.clear(); // only the root has a result
    }
    return call;
  }
  const bool all_to_all = what.kind == FlagosCommKind_AllToAll;
  const uint64_t element = call.dtype == FlagosCommDType_Bytes ? 1 : part.element_size();
  const auto add = [&](at::TensorList tensors, bool sends, bool parts, at::IntArrayRef rows) {
    const bool is_whole = parts && tensors.size() == 1 && (size_ > 1 || all_to_all);
    std::vector<uint64_t> counts;
    for (const at::Tensor& tensor : tensors) {
      if (all_to_all) {
        check_type(tensor, part, name);
      } else if (is_whole) {
        check_parts(tensor, part, size_, name);
      } else {
        check_like(tensor, part, name);
      }
      sends ? call.add_send(tensor) : call.add_recv(tensor);
      if (all_to_all) {
        counts.push_back(count_of(tensor));
      }
    }
    if (is_whole) {
      counts = all_to_all ? counts_of_rows(tensors[0], rows, size_, sends ? "input" : "output")
                          : std::vector<uint64_t>(size_, call.count);
      sends ? cut(call.send, counts, element) : cut(call.recv, counts, element);
    }
    if (all_to_all) {
      (sends ? call.send_counts : call.recv_counts) = std::move(counts);
    }
  };
  add(arguments.send, true, sends_parts(what.kind), arguments.send_rows);
  add(arguments.recv, false, receives_parts(what.kind), arguments.recv_rows);
  return call;
}

template <class CallOptions>
ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::run(
    const TorchCollective& what,
    const std::vector<Arguments>& calls,
    Tensors outputs,
    const CallOptions& options) {
  const at::TensorList first = calls[0].send.empty() ? calls[0].recv : calls[0].send;
  const c10::Device device = first[0].device();
  std::vector<Collective> collectives;
  collectives.reserve(calls.size());
  for (const Arguments& arguments : calls) {
    collectives.push_back(collective(what, arguments, device, options.timeout));
  }
  return issue(what, std::move(collectives), std::move(outputs), device, options.asyncOp);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const TorchCollective what{OpType::BROADCAST, "flagos:broadcast", FlagosCommKind_Broadcast};
  only(tensors, what.name());
  return run(what, {{tensors, tensors, options.rootRank}}, tensors, options);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const TorchCollective what{OpType::ALLREDUCE, "flagos:all_reduce", FlagosCommKind_AllReduce};
  if (only(tensors, what.name()).layout() != c10::kStrided && !coalescing_) {
    return sum_sparse(*this, tensors[0], options);
  }
  return run(what, {{tensors, tensors, FLAGOS_COMM_ANY_RANK, &options.reduceOp}}, tensors, options);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::allreduce_into(
    const at::Tensor& output,
    const at::Tensor& input,
    const c10d::AllreduceOptions& options) {
  const TorchCollective what{OpType::ALLREDUCE, "flagos:all_reduce", FlagosCommKind_AllReduce};
  return run(what, {{input, output, FLAGOS_COMM_ANY_RANK, &options.reduceOp}}, {output}, options);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::allreduce_coalesced(
    Tensors& tensors,
    const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "flagos: all_reduce_coalesced needs a tensor");
  std::vector<Arguments> calls;
  for (const at::Tensor& tensor : tensors) {
    calls.push_back({tensor, tensor, FLAGOS_COMM_ANY_RANK, &options.reduceOp});
  }
  return run(
      {OpType::ALLREDUCE_COALESCED, "flagos:all_reduce_coalesced", FlagosCommKind_AllReduce}, calls, tensors, options);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const TorchCollective what{OpType::REDUCE, "flagos:reduce", FlagosCommKind_Reduce};
  only(tensors, what.name());
  return run(what, {{tensors, tensors, options.rootRank, &options.reduceOp}}, tensors, options);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TorchCollective what{OpType::ALLGATHER, "flagos:all_gather", FlagosCommKind_AllGather};
  const at::Tensor& input = only(inputs, what.name());
  const Tensors& parts = only_list(outputs, size_, what.name());
  if (!is_uneven(parts)) {
    return run(what, {{inputs, parts}}, parts, options);
  }
  TORCH_CHECK_VALUE(
      input.sizes() == parts[rank_].sizes(),
      "flagos: all_gather gives this rank's tensor of sizes ",
      input.sizes(),
      " to a part of the list of sizes ",
      parts[rank_].sizes());
  // Every rank has the same sizes in its list: each part comes from its rank. HCCL broadcasts in place only.
  {
    const at::NoGradGuard no_grad;
    parts[rank_].copy_(input, /*non_blocking=*/true);
  }
  what.kind = FlagosCommKind_Broadcast;
  std::vector<Arguments> calls;
  for (int root = 0; root < size_; ++root) {
    calls.push_back({parts[root], parts[root], root});
  }
  return run(what, calls, parts, options);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::allgather_into_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  const TorchCollective what{OpType::_ALLGATHER_BASE, "flagos:all_gather_into_tensor", FlagosCommKind_AllGather};
  check_pairs(inputs, outputs, what.name());
  std::vector<Arguments> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back({inputs[i], outputs[i]});
  }
  return run(what, calls, outputs, options);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const TorchCollective what{OpType::ALLGATHER_COALESCED, "flagos:all_gather_coalesced", FlagosCommKind_AllGather};
  // One list a rank, each with one tensor an input.
  TORCH_CHECK_VALUE(
      !inputs.empty() && outputs.size() == static_cast<size_t>(size_),
      "flagos: all_gather_coalesced needs ",
      size_,
      " lists of tensors");
  TensorLists parts(inputs.size());
  Tensors flat;
  for (const Tensors& list : outputs) {
    TORCH_CHECK_VALUE(
        list.size() == inputs.size(), "flagos: all_gather_coalesced needs ", inputs.size(), " tensors a list");
    for (size_t i = 0; i < inputs.size(); ++i) {
      parts[i].push_back(list[i]);
      flat.push_back(list[i]);
    }
  }
  std::vector<Arguments> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back({inputs[i], parts[i]});
  }
  return run(what, calls, flat, options);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const TorchCollective what{OpType::GATHER, "flagos:gather", FlagosCommKind_Gather};
  only(inputs, what.name());
  const bool is_root = options.rootRank == rank_;
  TORCH_CHECK_VALUE(is_root || outputs.empty(), "flagos: gather takes outputs at the root only");
  const Tensors parts = is_root ? only_list(outputs, size_, what.name(), " at the root") : Tensors{};
  return run(what, {{inputs, parts, options.rootRank}}, parts, options);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  const TorchCollective what{OpType::SCATTER, "flagos:scatter", FlagosCommKind_Scatter};
  only(outputs, what.name());
  const bool is_root = options.rootRank == rank_;
  TORCH_CHECK_VALUE(is_root || inputs.empty(), "flagos: scatter takes inputs at the root only");
  const Tensors parts = is_root ? only_list(inputs, size_, what.name(), " at the root") : Tensors{};
  return run(what, {{parts, outputs, options.rootRank}}, outputs, options);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) {
  TorchCollective what{OpType::REDUCE_SCATTER, "flagos:reduce_scatter", FlagosCommKind_ReduceScatter};
  const at::Tensor& output = only(outputs, what.name());
  const Tensors& parts = only_list(inputs, size_, what.name());
  if (!is_uneven(parts)) {
    return run(what, {{parts, outputs, FLAGOS_COMM_ANY_RANK, &options.reduceOp}}, outputs, options);
  }
  what.kind = FlagosCommKind_Reduce;
  std::vector<Arguments> calls;
  for (int root = 0; root < size_; ++root) {
    calls.push_back({parts[root], root == rank_ ? output : parts[root], root, &options.reduceOp});
  }
  return run(what, calls, outputs, options);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::reduce_scatter_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  const TorchCollective what{
      OpType::_REDUCE_SCATTER_BASE, "flagos:reduce_scatter_tensor", FlagosCommKind_ReduceScatter};
  check_pairs(inputs, outputs, what.name());
  std::vector<Arguments> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back({inputs[i], outputs[i], FLAGOS_COMM_ANY_RANK, &options.reduceOp});
  }
  return run(what, calls, outputs, options);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  return run(
      {OpType::ALLTOALL_BASE, "flagos:all_to_all_single", FlagosCommKind_AllToAll},
      {{input, output, FLAGOS_COMM_ANY_RANK, nullptr, input_sizes, output_sizes}},
      {output},
      options);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const TorchCollective what{OpType::ALLTOALL, "flagos:all_to_all", FlagosCommKind_AllToAll};
  TORCH_CHECK_VALUE(
      outputs.size() == static_cast<size_t>(size_) && inputs.size() == static_cast<size_t>(size_),
      "flagos: all_to_all needs ",
      size_,
      " tensors each way, got ",
      inputs.size(),
      " and ",
      outputs.size());
  return run(what, {{inputs, outputs}}, outputs, options);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::transfer(const TorchCollective& what, Tensors& tensors, int rank, int tag) {
  const at::Tensor& tensor = only(tensors, what.name());
  check_tensor(tensor, tensor.device(), what.name());
  TORCH_CHECK_VALUE(
      rank == FLAGOS_COMM_ANY_RANK || (rank >= 0 && rank < size_),
      "flagos: rank ",
      rank,
      " is not in a group of ",
      size_);
  Collective call;
  call.kind = what.kind;
  call.sequence = ++transfers_;
  call.timeout = timeout_;
  call.root = rank;
  call.tag = tag;
  call.on_host = runs_on_host(tensor.device());
  call.part_of(tensor);
  what.kind == FlagosCommKind_Send ? call.add_send(tensor) : call.add_recv(tensor);
  return issue(what, {std::move(call)}, tensors, tensor.device(), /*async=*/true);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::send(Tensors& tensors, int rank, int tag) {
  return transfer({OpType::SEND, "flagos:send", FlagosCommKind_Send}, tensors, rank, tag);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::recv(Tensors& tensors, int rank, int tag) {
  return transfer({OpType::RECV, "flagos:recv", FlagosCommKind_Recv}, tensors, rank, tag);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::recvAnysource(Tensors& tensors, int tag) {
  return transfer({OpType::RECVANYSOURCE, "flagos:recv_any", FlagosCommKind_Recv}, tensors, FLAGOS_COMM_ANY_RANK, tag);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::barrier(const c10d::BarrierOptions& options) {
  TorchCollective what{OpType::BARRIER, "flagos:barrier", FlagosCommKind_Barrier};
  if (comm_api->host(comm_->get()) == FLAGOS_COMM_OK) {
    // Whoever waits for all ranks wants the work of their devices to be done too.
    if (device_ != nullptr) {
      c10::impl::getDeviceGuardImpl(kFlagos)->synchronizeDevice(current_device());
    } else if (!native->owned_by_torch) {
      drain_current_stream(current_device());
    }
    return issue(what, {next(what.kind, options.timeout)}, {}, c10::kCPU, options.asyncOp);
  }
  const c10::DeviceIndex index =
      options.device_ids.empty() ? current_device() : static_cast<c10::DeviceIndex>(options.device_ids[0]);
  const c10::Device device(kFlagos, index);
  Tensors token{at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device))};
  what.kind = FlagosCommKind_AllReduce;
  return issue(what, {collective(what, {token, token}, device, options.timeout)}, token, device, options.asyncOp);
}

} // namespace flagos
