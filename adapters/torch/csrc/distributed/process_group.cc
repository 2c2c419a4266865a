// SPDX-License-Identifier: Apache-2.0
#include "distributed/process_group.h"

#include <ATen/ops/zeros.h>
#include <pthread.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <thread>

#include "distributed/sparse_reduction.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

using c10d::OpType;

// How many forks lie between this process and the first one that made a group.
std::atomic<uint64_t> forks{0};

uint64_t count_forks() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  TORCH_CHECK(watched == 0, "flagos: forks cannot be watched");
  return forks;
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "flagos: ", what, " takes one tensor a rank, got ", tensors.size());
  return tensors[0];
}

// Refuses what has no dense memory, or is on another device than the first one.
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

// Parts of different sizes, which no engine takes in one call.
bool is_uneven(const std::vector<at::Tensor>& parts) {
  return std::any_of(
      parts.begin(), parts.end(), [&](const at::Tensor& part) { return part.numel() != parts[0].numel(); });
}

// `size` parts of a contiguous tensor, whose first dimension need not be a multiple.
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

void split_addresses(Operation& operation, bool send, const at::Tensor& whole, int size, int64_t part_bytes) {
  // The tensor itself was added as one address, possibly that of a staged copy.
  if (send) {
    const auto* first = static_cast<const char*>(operation.send.back());
    operation.send.resize(size);
    for (int i = 0; i < size; ++i) {
      operation.send[i] = first + i * part_bytes;
    }
  } else {
    auto* first = static_cast<char*>(operation.recv.back());
    operation.recv.resize(size);
    for (int i = 0; i < size; ++i) {
      operation.recv[i] = first + i * part_bytes;
    }
  }
}

} // namespace

ProcessGroupFlagos::ProcessGroupFlagos(
    c10::intrusive_ptr<c10d::Store> store,
    int rank,
    int size,
    std::chrono::milliseconds timeout,
    GroupSettings settings)
    : Backend(rank, size),
      store_(std::move(store)),
      settings_(std::move(settings)),
      timeout_(timeout),
      made_after_forks_(count_forks()) {
  init();
  CommSettings host = settings_.comm;
  host.engine = "shm";
  host.library.clear();
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>("host/", store_);
  try {
    auto comm = std::make_shared<Comm>(host, "host", prefixed, rank, size, timeout);
    host_ =
        std::make_unique<HostGroup>(std::move(comm), record_, settings_.dump_folder, settings_.comm.group, rank, size);
  } catch (const c10::NotImplementedError& error) {
    host_failure_ = error.what_without_backtrace(); // ranks on several hosts: told when tensors on the CPU come
  }
}

ProcessGroupFlagos::~ProcessGroupFlagos() {
  if (forked()) {
    // The threads are not here, and locks are as the parent happened to hold them.
    static_cast<void>(host_.release());
    static_cast<void>(device_.release());
  }
}

bool ProcessGroupFlagos::forked() const {
  return forks != made_after_forks_;
}

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupFlagos::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(timeout_);
  options->group_name = settings_.comm.group;
  options->global_ranks_in_group = settings_.global_ranks;
  return options;
}

void ProcessGroupFlagos::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
}

HostGroup& ProcessGroupFlagos::host() {
  TORCH_CHECK_NOT_IMPLEMENTED(host_ != nullptr, host_failure_);
  return *host_;
}

DeviceGroup& ProcessGroupFlagos::device_group() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (device_ == nullptr) {
    device_ = std::make_unique<DeviceGroup>(
        settings_.comm,
        c10::make_intrusive<c10d::PrefixStore>("device/", store_),
        rank_,
        size_,
        record_,
        settings_.dump_folder);
  }
  return *device_;
}

std::chrono::milliseconds ProcessGroupFlagos::timeout_or_default(std::chrono::milliseconds timeout) const {
  return timeout == c10d::kUnsetTimeout || timeout.count() <= 0 ? timeout_ : timeout;
}

Operation ProcessGroupFlagos::operation(uint32_t kind, std::chrono::milliseconds timeout) {
  Operation operation;
  operation.kind = kind;
  operation.sequence = ++collectives_;
  operation.timeout = timeout_or_default(timeout);
  return operation;
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::issue(
    OpType type,
    const char* title,
    std::vector<Operation> operations,
    Tensors outputs,
    c10::Device device,
    bool async) {
  TORCH_CHECK_VALUE(
      device.is_cpu() || device.type() == kFlagos,
      "flagos: the backend flagos serves tensors on the CPU and on flagos devices, not on ",
      device);
  TORCH_CHECK_WITH(
      DistBackendError,
      !forked(),
      "flagos: group ",
      settings_.comm.group,
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
    coalesced_async_ = async;
    std::move(operations.begin(), operations.end(), std::back_inserter(coalesced_));
    std::move(outputs.begin(), outputs.end(), std::back_inserter(coalesced_outputs_));
    return nullptr;
  }
  const std::string& engine = settings_.comm.engine;
  const bool on_host = device.is_cpu() || (!native.cuda && (engine.empty() || engine == "auto" || engine == "shm"));
  if (on_host) {
    if (!device.is_cpu()) {
      drain_current_stream(device.index()); // what was queued before has to have happened
    }
    return host().issue(type, title, std::move(operations), std::move(outputs), async);
  }
  return device_group().issue(
      type,
      title,
      std::move(operations),
      std::move(outputs),
      device,
      async,
      /*batched=*/type == OpType::COALESCED,
      /*blocks_host=*/type == OpType::BARRIER);
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
  auto operations = std::move(coalesced_);
  auto outputs = std::move(coalesced_outputs_);
  coalesced_.clear();
  coalesced_outputs_.clear();
  if (operations.empty()) {
    return nullptr;
  }
  return issue(
      OpType::COALESCED, "flagos:coalesced", std::move(operations), std::move(outputs), *coalesced_device_, true);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  check_tensor(tensor, tensor.device(), "broadcast");
  Operation call = operation(FlagosCommKind_Broadcast, options.timeout);
  call.root = static_cast<int>(options.rootRank);
  call.part_of(tensor);
  call.add_both(tensor);
  return issue(OpType::BROADCAST, "flagos:broadcast", {std::move(call)}, tensors, tensor.device(), options.asyncOp);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "all_reduce");
  if (tensor.layout() != c10::kStrided && !coalescing_) {
    return sum_sparse(*this, tensors[0], options);
  }
  check_tensor(tensor, tensor.device(), "all_reduce");
  Operation call = operation(FlagosCommKind_AllReduce, options.timeout);
  set_reduction(call, options.reduceOp);
  call.part_of(tensor);
  call.add_both(tensor);
  return issue(OpType::ALLREDUCE, "flagos:all_reduce", {std::move(call)}, tensors, tensor.device(), options.asyncOp);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::allreduce_coalesced(
    Tensors& tensors,
    const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "flagos: all_reduce_coalesced needs a tensor");
  std::vector<Operation> calls;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, tensors[0].device(), "all_reduce_coalesced");
    Operation call = operation(FlagosCommKind_AllReduce, options.timeout);
    set_reduction(call, options.reduceOp);
    call.part_of(tensor);
    call.add_both(tensor);
    calls.push_back(std::move(call));
  }
  const auto device = tensors[0].device();
  return issue(
      OpType::ALLREDUCE_COALESCED, "flagos:all_reduce_coalesced", std::move(calls), tensors, device, options.asyncOp);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "reduce");
  check_tensor(tensor, tensor.device(), "reduce");
  Operation call = operation(FlagosCommKind_Reduce, options.timeout);
  call.root = static_cast<int>(options.rootRank);
  set_reduction(call, options.reduceOp);
  call.part_of(tensor);
  call.add_both(tensor);
  if (call.root != rank_) {
    call.staged.clear(); // the tensors of the other ranks stay as they are
  }
  return issue(OpType::REDUCE, "flagos:reduce", {std::move(call)}, tensors, tensor.device(), options.asyncOp);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(inputs, "all_gather");
  TORCH_CHECK_VALUE(
      outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_),
      "flagos: all_gather needs one list of ",
      size_,
      " tensors");
  if (is_uneven(outputs[0])) {
    // Every rank has the same sizes in its list: each part comes from its rank.
    std::vector<Operation> calls;
    for (int root = 0; root < size_; ++root) {
      const at::Tensor& output = outputs[0][root];
      check_tensor(output, input.device(), "all_gather");
      if (root == rank_) {
        check_like(output, input, "all_gather");
      }
      Operation call = operation(FlagosCommKind_Broadcast, options.timeout);
      call.root = root;
      call.part_of(output);
      call.add_send(root == rank_ ? input : output);
      call.add_recv(output);
      calls.push_back(std::move(call));
    }
    return issue(OpType::ALLGATHER, "flagos:all_gather", std::move(calls), outputs[0], input.device(), options.asyncOp);
  }
  Operation call = operation(FlagosCommKind_AllGather, options.timeout);
  call.part_of(input);
  call.add_send(input);
  for (const at::Tensor& output : outputs[0]) {
    check_like(output, input, "all_gather");
    call.add_recv(output);
  }
  return issue(OpType::ALLGATHER, "flagos:all_gather", {std::move(call)}, outputs[0], input.device(), options.asyncOp);
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
  TORCH_CHECK_VALUE(
      !inputs.empty() && outputs.size() == inputs.size(),
      "flagos: all_gather_into_tensor got ",
      inputs.size(),
      " inputs and ",
      outputs.size(),
      " outputs");
  std::vector<Operation> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(inputs[i], inputs[0].device(), "all_gather_into_tensor");
    check_parts(outputs[i], inputs[i], size_, "all_gather_into_tensor");
    Operation call = operation(FlagosCommKind_AllGather, options.timeout);
    call.part_of(inputs[i]);
    call.add_send(inputs[i]);
    call.add_recv(outputs[i]);
    split_addresses(call, false, outputs[i], size_, static_cast<int64_t>(inputs[i].nbytes()));
    calls.push_back(std::move(call));
  }
  const auto device = inputs[0].device();
  return issue(
      OpType::_ALLGATHER_BASE, "flagos:all_gather_into_tensor", std::move(calls), outputs, device, options.asyncOp);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  // One list a rank, each with one tensor an input.
  TORCH_CHECK_VALUE(
      !inputs.empty() && outputs.size() == static_cast<size_t>(size_),
      "flagos: all_gather_coalesced needs ",
      size_,
      " lists of tensors");
  std::vector<Operation> calls;
  Tensors flat;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Operation call = operation(FlagosCommKind_AllGather, options.timeout);
    call.part_of(inputs[i]);
    call.add_send(inputs[i]);
    for (const auto& list : outputs) {
      TORCH_CHECK_VALUE(
          list.size() == inputs.size(), "flagos: all_gather_coalesced needs ", inputs.size(), " tensors a list");
      check_like(list[i], inputs[i], "all_gather_coalesced");
      call.add_recv(list[i]);
      flat.push_back(list[i]);
    }
    calls.push_back(std::move(call));
  }
  const auto device = inputs[0].device();
  return issue(
      OpType::ALLGATHER_COALESCED, "flagos:all_gather_coalesced", std::move(calls), flat, device, options.asyncOp);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs, "gather");
  check_tensor(input, input.device(), "gather");
  Operation call = operation(FlagosCommKind_Gather, options.timeout);
  call.root = static_cast<int>(options.rootRank);
  call.part_of(input);
  call.add_send(input);
  Tensors results;
  if (call.root == rank_) {
    TORCH_CHECK_VALUE(
        outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_),
        "flagos: gather needs one list of ",
        size_,
        " tensors at the root");
    for (const at::Tensor& output : outputs[0]) {
      check_like(output, input, "gather");
      call.add_recv(output);
    }
    results = outputs[0];
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), "flagos: gather takes outputs at the root only");
  }
  return issue(OpType::GATHER, "flagos:gather", {std::move(call)}, results, input.device(), options.asyncOp);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs, "scatter");
  check_tensor(output, output.device(), "scatter");
  Operation call = operation(FlagosCommKind_Scatter, options.timeout);
  call.root = static_cast<int>(options.rootRank);
  call.part_of(output);
  if (call.root == rank_) {
    TORCH_CHECK_VALUE(
        inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_),
        "flagos: scatter needs one list of ",
        size_,
        " tensors at the root");
    for (const at::Tensor& input : inputs[0]) {
      check_like(input, output, "scatter");
      call.add_send(input);
    }
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), "flagos: scatter takes inputs at the root only");
  }
  call.add_recv(output);
  return issue(OpType::SCATTER, "flagos:scatter", {std::move(call)}, outputs, output.device(), options.asyncOp);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  TORCH_CHECK_VALUE(
      inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_),
      "flagos: reduce_scatter needs one list of ",
      size_,
      " tensors");
  if (is_uneven(inputs[0])) {
    std::vector<Operation> calls;
    for (int root = 0; root < size_; ++root) {
      const at::Tensor& input = inputs[0][root];
      check_tensor(input, output.device(), "reduce_scatter");
      Operation call = operation(FlagosCommKind_Reduce, options.timeout);
      call.root = root;
      set_reduction(call, options.reduceOp);
      call.part_of(input);
      if (root == rank_) {
        check_like(output, input, "reduce_scatter");
        call.add_send(input);
        call.add_recv(output);
      } else {
        call.add_both(input);
        call.staged.clear(); // only the root has a result
      }
      calls.push_back(std::move(call));
    }
    return issue(
        OpType::REDUCE_SCATTER, "flagos:reduce_scatter", std::move(calls), outputs, output.device(), options.asyncOp);
  }
  Operation call = operation(FlagosCommKind_ReduceScatter, options.timeout);
  set_reduction(call, options.reduceOp);
  call.part_of(output);
  for (const at::Tensor& input : inputs[0]) {
    check_like(input, output, "reduce_scatter");
    call.add_send(input);
  }
  call.add_recv(output);
  return issue(
      OpType::REDUCE_SCATTER, "flagos:reduce_scatter", {std::move(call)}, outputs, output.device(), options.asyncOp);
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
  TORCH_CHECK_VALUE(
      !inputs.empty() && outputs.size() == inputs.size(),
      "flagos: reduce_scatter_tensor got ",
      inputs.size(),
      " inputs and ",
      outputs.size(),
      " outputs");
  std::vector<Operation> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(outputs[i], inputs[0].device(), "reduce_scatter_tensor");
    check_parts(inputs[i], outputs[i], size_, "reduce_scatter_tensor");
    Operation call = operation(FlagosCommKind_ReduceScatter, options.timeout);
    set_reduction(call, options.reduceOp);
    call.part_of(outputs[i]);
    call.add_send(inputs[i]);
    split_addresses(call, true, inputs[i], size_, static_cast<int64_t>(outputs[i].nbytes()));
    call.add_recv(outputs[i]);
    calls.push_back(std::move(call));
  }
  const auto device = inputs[0].device();
  return issue(
      OpType::_REDUCE_SCATTER_BASE, "flagos:reduce_scatter_tensor", std::move(calls), outputs, device, options.asyncOp);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  check_tensor(output, input.device(), "all_to_all_single");
  check_tensor(input, input.device(), "all_to_all_single");
  TORCH_CHECK_VALUE(
      output.scalar_type() == input.scalar_type(),
      "flagos: all_to_all_single got ",
      input.scalar_type(),
      " and ",
      output.scalar_type());
  Operation call = operation(FlagosCommKind_AllToAll, options.timeout);
  call.part_of(input);
  const int64_t element = call.dtype == FlagosCommDType_Bytes ? 1 : static_cast<int64_t>(input.element_size());
  // Sizes are of the first dimension; without them the tensor is cut into equal parts.
  const auto counts = [&](const at::Tensor& tensor, const std::vector<int64_t>& sizes, const char* what) {
    std::vector<uint64_t> result(size_);
    const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
    const int64_t units = static_cast<int64_t>(tensor.nbytes()) / element;
    if (sizes.empty()) {
      TORCH_CHECK_VALUE(
          rows % size_ == 0, "flagos: the first dimension of the ", what, " (", rows, ") is not a multiple of ", size_);
      std::fill(result.begin(), result.end(), static_cast<uint64_t>(units / size_));
      return result;
    }
    int64_t sum = 0;
    for (const int64_t size : sizes) {
      TORCH_CHECK_VALUE(size >= 0, "flagos: a negative split size, ", size);
      sum += size;
    }
    TORCH_CHECK_VALUE(
        sizes.size() == static_cast<size_t>(size_) && sum == rows,
        "flagos: the split sizes of the ",
        what,
        " are ",
        sizes.size(),
        " with a sum of ",
        sum,
        "; ",
        size_,
        " with a sum of ",
        rows,
        " are needed");
    for (int i = 0; i < size_; ++i) {
      result[i] = static_cast<uint64_t>(rows == 0 ? 0 : sizes[i] * (units / rows));
    }
    return result;
  };
  call.send_counts = counts(input, input_sizes, "input");
  call.recv_counts = counts(output, output_sizes, "output");
  call.add_send(input);
  call.add_recv(output);
  const auto* from = static_cast<const char*>(call.send[0]);
  auto* to = static_cast<char*>(call.recv[0]);
  call.send.clear();
  call.recv.clear();
  for (int i = 0; i < size_; ++i) {
    call.send.push_back(from);
    call.recv.push_back(to);
    from += call.send_counts[i] * static_cast<uint64_t>(element);
    to += call.recv_counts[i] * static_cast<uint64_t>(element);
  }
  return issue(
      OpType::ALLTOALL_BASE, "flagos:all_to_all_single", {std::move(call)}, {output}, input.device(), options.asyncOp);
}

ProcessGroupFlagos::WorkPtr
ProcessGroupFlagos::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(
      outputs.size() == static_cast<size_t>(size_) && inputs.size() == static_cast<size_t>(size_),
      "flagos: all_to_all needs ",
      size_,
      " tensors each way, got ",
      inputs.size(),
      " and ",
      outputs.size());
  Operation call = operation(FlagosCommKind_AllToAll, options.timeout);
  for (const at::Tensor& input : inputs) {
    check_tensor(input, inputs[0].device(), "all_to_all");
    TORCH_CHECK_VALUE(
        input.scalar_type() == inputs[0].scalar_type(),
        "flagos: all_to_all needs tensors of one type, got ",
        inputs[0].scalar_type(),
        " and ",
        input.scalar_type());
    call.part_of(input);
    call.send_counts.push_back(call.count);
    call.add_send(input);
  }
  for (const at::Tensor& output : outputs) {
    check_tensor(output, inputs[0].device(), "all_to_all");
    TORCH_CHECK_VALUE(
        output.scalar_type() == inputs[0].scalar_type(),
        "flagos: all_to_all got ",
        inputs[0].scalar_type(),
        " and ",
        output.scalar_type());
    call.part_of(output);
    call.recv_counts.push_back(call.count);
    call.add_recv(output);
  }
  const auto device = inputs[0].device();
  return issue(OpType::ALLTOALL, "flagos:all_to_all", {std::move(call)}, outputs, device, options.asyncOp);
}

Operation ProcessGroupFlagos::transfer(uint32_t kind, const Tensors& tensors, int rank, int tag) {
  const bool sends = kind == FlagosCommKind_Send;
  const at::Tensor& tensor = only(tensors, sends ? "send" : "recv");
  check_tensor(tensor, tensor.device(), sends ? "send" : "recv");
  TORCH_CHECK_VALUE(
      rank == FLAGOS_COMM_ANY_RANK || (rank >= 0 && rank < size_),
      "flagos: rank ",
      rank,
      " is not in a group of ",
      size_);
  Operation call;
  call.kind = kind;
  call.sequence = ++transfers_;
  call.timeout = timeout_;
  call.root = rank;
  call.tag = tag;
  call.part_of(tensor);
  sends ? call.add_send(tensor) : call.add_recv(tensor);
  return call;
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::send(Tensors& tensors, int rank, int tag) {
  Operation call = transfer(FlagosCommKind_Send, tensors, rank, tag);
  return issue(OpType::SEND, "flagos:send", {std::move(call)}, tensors, tensors[0].device(), true);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::recv(Tensors& tensors, int rank, int tag) {
  Operation call = transfer(FlagosCommKind_Recv, tensors, rank, tag);
  return issue(OpType::RECV, "flagos:recv", {std::move(call)}, tensors, tensors[0].device(), true);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::recvAnysource(Tensors& tensors, int tag) {
  Operation call = transfer(FlagosCommKind_Recv, tensors, FLAGOS_COMM_ANY_RANK, tag);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !native.cuda || tensors[0].is_cpu(), "flagos: a receive on a device has to name the rank it is from");
  return issue(OpType::RECVANYSOURCE, "flagos:recv_any", {std::move(call)}, tensors, tensors[0].device(), true);
}

ProcessGroupFlagos::WorkPtr ProcessGroupFlagos::barrier(const c10d::BarrierOptions& options) {
  Operation call = operation(FlagosCommKind_Barrier, options.timeout);
  if (host_ != nullptr) {
    // Who waits for all ranks wants the work of their devices to be done too.
    if (native.cuda && device_ != nullptr) {
      c10::impl::getDeviceGuardImpl(kFlagos)->synchronizeDevice(current_device());
    } else if (!native.cuda) {
      drain_current_stream(current_device());
    }
    return issue(OpType::BARRIER, "flagos:barrier", {std::move(call)}, {}, c10::kCPU, options.asyncOp);
  }
  const c10::DeviceIndex index =
      options.device_ids.empty() ? current_device() : static_cast<c10::DeviceIndex>(options.device_ids[0]);
  const c10::Device device(kFlagos, index);
  const at::Tensor token = at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device));
  call.kind = FlagosCommKind_AllReduce;
  call.part_of(token);
  call.add_both(token);
  return issue(OpType::BARRIER, "flagos:barrier", {std::move(call)}, {token}, device, options.asyncOp);
}

// Who is told what, in ProcessGroupGloo's words.
void ProcessGroupFlagos::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const std::string prefix = "monitored/" + std::to_string(++monitored_) + "/";
  const auto left = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  };
  // Time for what has come already to be seen.
  constexpr auto kLeast = std::chrono::milliseconds(1);
  const std::string within = " in " + std::to_string(timeout.count()) + " ms, in group " + settings_.comm.group;
  store_->set(prefix + std::to_string(rank_), std::string("1"));
  if (rank_ != 0) {
    std::string verdict;
    try {
      // Rank 0 may need all of the time to find out who is missing.
      store_->wait({prefix + "verdict"}, std::max(left(), kLeast) + std::chrono::seconds(5));
      verdict = store_->get_to_str(prefix + "verdict");
    } catch (const std::exception& failure) {
      if (!only_late(failure, *store_, prefix + "verdict")) {
        throw;
      }
      verdict = "Rank 0 failed to pass monitoredBarrier" + within;
    }
    TORCH_CHECK_WITH(
        DistBackendError,
        verdict == "ok",
        "Rank ",
        rank_,
        " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: ",
        verdict);
    return;
  }
  std::string verdict = "ok";
  std::string missing;
  bool several = false;
  for (int other = 1; other < size_ && (wait_for_all || missing.empty()); ++other) {
    if (timeout.count() <= 0) {
      verdict = "Rank 0 timed out in monitoredBarrier after " + std::to_string(timeout.count()) + " ms";
      break;
    }
    try {
      store_->wait({prefix + std::to_string(other)}, std::max(left(), kLeast));
    } catch (const std::exception& failure) {
      if (!only_late(failure, *store_, prefix + std::to_string(other))) {
        throw;
      }
      several = !missing.empty();
      missing += (missing.empty() ? "" : ", ") + std::to_string(other);
    }
  }
  if (!missing.empty()) {
    verdict = (several ? "Ranks " : "Rank ") + missing + " failed to pass monitoredBarrier" + within;
  }
  store_->set(prefix + "verdict", verdict);
  TORCH_CHECK_WITH(DistBackendError, verdict == "ok", verdict);
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
    settings.comm.group = options->group_name;
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
  if (device.type() == kFlagos && native.cuda) {
    device_group().connect(device, timeout_);
  }
}

c10d::ErrorType ProcessGroupFlagos::getError() {
  if (device_ != nullptr && device_->failed()) {
    return c10d::ErrorType::COMM_ERROR;
  }
  if (host_ != nullptr && comm_api->async_error(host_->comm().get()) != FLAGOS_COMM_OK) {
    return c10d::ErrorType::REMOTE_ERROR;
  }
  return c10d::ErrorType::SUCCESS;
}

void ProcessGroupFlagos::fail(const std::string& reason) {
  if (forked()) {
    return; // the group is the parent's, and goes on
  }
  if (host_ != nullptr) {
    host_->comm().abort(reason);
  }
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
  std::string text = R"({"rank": )" + std::to_string(rank_) + R"(, "size": )" + std::to_string(size_);
  text += R"(, "host": )" + (host_ != nullptr ? host_->comm().state() : std::string("null"));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    text += R"(, "device": )" + (device_ != nullptr ? device_->state() : std::string("null"));
  }
  return text + R"(, "calls": )" + record_->json() + "}";
}

} // namespace flagos
