// SPDX-License-Identifier: Apache-2.0
#include "distributed/collective.h"

#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>

#include "runtime/native.h"

namespace flagos {

namespace {

// The device that the elements of a tensor must be on for a collective to reach them.
c10::Device reachable(const at::Tensor& tensor, bool on_host) {
  return on_host && native->by_copies ? c10::Device(c10::kCPU) : tensor.device();
}

bool is_plain(const at::Tensor& tensor, bool on_host) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
      tensor.device() == reachable(tensor, on_host);
}

// The tensor itself if its memory holds the elements in order, otherwise a copy.
at::Tensor plain(const at::Tensor& tensor, bool on_host) {
  return is_plain(tensor, on_host) ? tensor
                                   : tensor.to(reachable(tensor, on_host)).resolve_conj().resolve_neg().contiguous();
}

// The type that gathered values are reduced in: halves are rounded once, as `shm` does, and torch adds no unsigned
// numbers of more than 8 bits, of which `uint64` is not gathered.
c10::ScalarType reduced_in(c10::ScalarType type) {
  using c10::ScalarType;
  return type == ScalarType::UInt16 || type == ScalarType::UInt32 ? ScalarType::Long : at::toOpMathType(type);
}

at::Tensor combine(uint32_t reduce, const at::Tensor& one, const at::Tensor& other) {
  switch (reduce) {
    case FlagosCommReduce_Sum:
      return at::add(one, other);
    case FlagosCommReduce_Prod:
      return at::mul(one, other);
    case FlagosCommReduce_Min:
      return at::minimum(one, other);
    case FlagosCommReduce_Max:
      return at::maximum(one, other);
    case FlagosCommReduce_BitAnd:
      return at::bitwise_and(one, other);
    case FlagosCommReduce_BitOr:
      return at::bitwise_or(one, other);
    case FlagosCommReduce_BitXor:
      return at::bitwise_xor(one, other);
    default:
      TORCH_INTERNAL_ASSERT(false, "flagos: reduction ", reduce, " of gathered data");
  }
}

// In the order of the ranks.
at::Tensor reduced(uint32_t reduce, const at::Tensor& gathered) {
  const c10::ScalarType type = reduced_in(gathered.scalar_type());
  at::Tensor total = gathered[0].to(type);
  for (int64_t rank = 1; rank < gathered.size(0); ++rank) {
    total = combine(reduce, total, gathered[rank].to(type));
  }
  return total;
}

} // namespace

uint64_t count_of(const at::Tensor& tensor) {
  const bool as_bytes = comm_dtype(tensor.scalar_type()) == FlagosCommDType_Bytes;
  return as_bytes ? tensor.nbytes() : static_cast<uint64_t>(tensor.numel());
}

void Collective::part_of(const at::Tensor& tensor) {
  dtype = comm_dtype(tensor.scalar_type());
  count = count_of(tensor);
}

void Collective::add_send(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor from = plain(tensor, on_host);
  send.push_back(from.const_data_ptr());
  tensors.push_back(std::move(from));
}

void Collective::add_recv(const at::Tensor& tensor) {
  if (is_plain(tensor, on_host)) {
    recv.push_back(tensor.mutable_data_ptr());
    tensors.push_back(tensor);
    result = tensor;
    return;
  }
  at::Tensor to = at::empty(tensor.sizes(), tensor.options().device(reachable(tensor, on_host)));
  recv.push_back(to.mutable_data_ptr());
  tensors.push_back(tensor);
  result = to;
  staged.emplace_back(tensor, std::move(to));
}

void Collective::add_both(const at::Tensor& tensor) {
  add_send(tensor);
  result = tensors.back();
  recv.push_back(result.mutable_data_ptr());
  if (!is_plain(tensor, on_host)) {
    staged.emplace_back(tensor, result);
  }
}

FlagosCollective Collective::view() const {
  FlagosCollective call{};
  call.kind = kind;
  call.dtype = dtype;
  call.reduce = reduce;
  call.root = root;
  call.tag = tag;
  call.sends = static_cast<uint32_t>(send.size());
  call.receives = static_cast<uint32_t>(recv.size());
  call.count = count;
  call.factor = factor;
  call.sequence = sequence;
  call.timeout_ms = static_cast<uint64_t>(timeout.count());
  call.send = send.data();
  call.recv = recv.data();
  call.send_counts = send_counts.empty() ? nullptr : send_counts.data();
  call.recv_counts = recv_counts.empty() ? nullptr : recv_counts.data();
  return call;
}

void Collective::gather(int rank, int size) {
  recv.clear();
  if (kind != FlagosCommKind_Reduce || root == rank) {
    gathered = at::empty({size, static_cast<int64_t>(count)}, result.options());
    auto* address = static_cast<char*>(gathered.mutable_data_ptr());
    for (int each = 0; each < size; ++each) {
      recv.push_back(address + each * (gathered.nbytes() / size));
    }
    tensors.push_back(gathered);
  }
  switch (kind) {
    case FlagosCommKind_Reduce:
      kind = FlagosCommKind_Gather;
      break;
    case FlagosCommKind_ReduceScatter:
      kind = FlagosCommKind_AllToAll;
      send_counts.assign(size, count);
      recv_counts.assign(size, count);
      break;
    default:
      kind = FlagosCommKind_AllGather;
  }
}

void Collective::unstage(int size) const {
  if (staged.empty() && !divides && !gathered.defined()) {
    return;
  }
  const at::NoGradGuard no_grad;
  at::Tensor total = gathered.defined() ? reduced(reduce, gathered) : result;
  if (divides) {
    // As the libraries that average whole numbers.
    c10::isIntegralType(total.scalar_type(), /*includeBool=*/true) ? total.div_(size, "trunc") : total.div_(size);
  }
  if (gathered.defined()) {
    result.view(-1).copy_(total);
  }
  for (const auto& [to, from] : staged) {
    to.copy_(from);
  }
}

void set_reduction(Collective& collective, const c10d::ReduceOp& op) {
  using c10d::ReduceOp;
  switch (op.op_) {
    case ReduceOp::SUM:
      collective.reduce = FlagosCommReduce_Sum;
      return;
    case ReduceOp::AVG:
      collective.reduce = FlagosCommReduce_Avg;
      return;
    case ReduceOp::PRODUCT:
      collective.reduce = FlagosCommReduce_Prod;
      return;
    case ReduceOp::MIN:
      collective.reduce = FlagosCommReduce_Min;
      return;
    case ReduceOp::MAX:
      collective.reduce = FlagosCommReduce_Max;
      return;
    case ReduceOp::BAND:
      collective.reduce = FlagosCommReduce_BitAnd;
      return;
    case ReduceOp::BOR:
      collective.reduce = FlagosCommReduce_BitOr;
      return;
    case ReduceOp::BXOR:
      collective.reduce = FlagosCommReduce_BitXor;
      return;
    case ReduceOp::PREMUL_SUM: {
      TORCH_CHECK_VALUE(op.supplement_, "flagos: PREMUL_SUM without a factor");
      const auto* factor = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      collective.reduce = FlagosCommReduce_PremulSum;
      collective.factor =
          factor->tensor_factor.defined() ? factor->tensor_factor.item().toDouble() : factor->double_factor;
      return;
    }
    default:
      TORCH_CHECK_VALUE(false, "flagos: unknown reduction ", static_cast<int>(op.op_));
  }
}

bool is_transfer(const Collective& collective) {
  return collective.kind == FlagosCommKind_Send || collective.kind == FlagosCommKind_Recv;
}

void check_transfers_to_self(const std::vector<Collective>& batch, int rank) {
  std::vector<const Collective*> sends;
  std::vector<const Collective*> receives;
  for (const Collective& collective : batch) {
    if (is_transfer(collective) && collective.root == rank) {
      (collective.kind == FlagosCommKind_Send ? sends : receives).push_back(&collective);
    }
  }
  TORCH_CHECK_VALUE(
      sends.size() == receives.size(),
      "flagos: rank ",
      rank,
      " sends ",
      sends.size(),
      " tensors to itself and receives ",
      receives.size(),
      " from itself in one batch: give both sides of each transfer to one torch.distributed.batch_isend_irecv");
  for (size_t i = 0; i < sends.size(); ++i) {
    TORCH_CHECK_VALUE(
        sends[i]->count == receives[i]->count && sends[i]->dtype == receives[i]->dtype &&
            sends[i]->tag == receives[i]->tag,
        "flagos: transfer ",
        i,
        " of rank ",
        rank,
        " to itself sends ",
        sends[i]->count,
        " elements of ",
        sends[i]->tensors[0].scalar_type(),
        " with tag ",
        sends[i]->tag,
        " and receives ",
        receives[i]->count,
        " of ",
        receives[i]->tensors[0].scalar_type(),
        " with tag ",
        receives[i]->tag);
  }
}

} // namespace flagos
