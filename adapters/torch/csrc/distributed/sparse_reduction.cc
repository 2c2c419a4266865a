// SPDX-License-Identifier: Apache-2.0
#include "distributed/sparse_reduction.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/native.h"

namespace flagos {

namespace {

// Numbers of a header, which describes a sparse tensor of up to kMostDimensions.
constexpr int64_t kHeader = 68;
constexpr int64_t kMostDimensions = kHeader - 4;

c10d::AllgatherOptions waiting(const c10d::AllreduceOptions& options) {
  c10d::AllgatherOptions result;
  result.timeout = options.timeout;
  result.asyncOp = true;
  return result;
}

void gather(
    c10d::Backend& group,
    std::vector<at::Tensor> parts,
    at::Tensor mine,
    const c10d::AllgatherOptions& options) {
  std::vector<std::vector<at::Tensor>> outputs{std::move(parts)};
  std::vector<at::Tensor> inputs{std::move(mine)};
  group.allgather(outputs, inputs, options)->wait();
}

// The header: number of elements, type, sparse dimensions, dimensions, sizes.
at::Tensor header_of(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      tensor.dim() <= kMostDimensions,
      "flagos: all_reduce of a sparse tensor takes up to ",
      kMostDimensions,
      " dimensions, got ",
      tensor.dim());
  std::vector<int64_t> header(kHeader, 0);
  header[0] = tensor._nnz();
  header[1] = static_cast<int64_t>(tensor.scalar_type());
  header[2] = tensor.sparse_dim();
  header[3] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), header.begin() + 4);
  return at::tensor(header, at::kLong).to(tensor.device());
}

std::string described(const at::Tensor& header) {
  const auto* numbers = header.const_data_ptr<int64_t>();
  std::ostringstream text;
  text << static_cast<c10::ScalarType>(numbers[1]) << " of " << at::IntArrayRef(numbers + 4, numbers[3]) << " with "
       << numbers[2] << " sparse dimensions";
  return text.str();
}

std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>> allreduce(
    at::TensorList tensors,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const c10::intrusive_ptr<c10d::ReduceOp>& reduction,
    const std::optional<at::Tensor>& /*sparse_indices*/,
    bool async,
    int64_t timeout) {
  c10d::AllreduceOptions options;
  options.reduceOp = *reduction;
  options.timeout = std::chrono::milliseconds(timeout);
  options.asyncOp = async;
  auto list = tensors.vec();
  auto work = group->getBackend(kFlagos)->allreduce(list, options);
  return {std::move(list), std::move(work)};
}

} // namespace

void register_sparse_reduction() {
  static torch::Library library(torch::Library::IMPL, "c10d", c10::DispatchKey::SparsePrivateUse1, __FILE__, __LINE__);
  library.impl("allreduce_", allreduce);
}

c10::intrusive_ptr<c10d::Work>
sum_sparse(c10d::Backend& group, at::Tensor& tensor, const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(
      options.reduceOp == c10d::ReduceOp::SUM,
      "flagos: all_reduce of a sparse tensor is for sums: call to_dense() first");
  TORCH_CHECK_VALUE(
      tensor.layout() == c10::kSparse,
      "flagos: all_reduce takes dense tensors and sparse ones in COO layout, got ",
      tensor.layout());
  const auto waits = waiting(options);
  const int size = group.getSize();
  const at::Tensor mine = tensor.coalesce();
  const at::Tensor header = header_of(mine);
  std::vector<at::Tensor> headers(size);
  for (auto& each : headers) {
    each = at::empty_like(header);
  }
  gather(group, headers, header, waits);
  for (auto& each : headers) {
    each = each.cpu();
  }
  const at::Tensor own = headers[group.getRank()].slice(0, 1);
  for (int rank = 0; rank < size; ++rank) {
    TORCH_CHECK_VALUE(
        at::equal(headers[rank].slice(0, 1), own),
        "flagos: all_reduce of a sparse tensor: rank ",
        rank,
        " has ",
        described(headers[rank]),
        ", and rank ",
        group.getRank(),
        " has ",
        described(headers[group.getRank()]));
  }
  const at::Tensor indices = mine.indices().contiguous();
  const at::Tensor values = mine.values().contiguous();
  std::vector<at::Tensor> all_indices(size);
  std::vector<at::Tensor> all_values(size);
  for (int rank = 0; rank < size; ++rank) {
    const int64_t count = headers[rank].const_data_ptr<int64_t>()[0];
    auto shape = values.sizes().vec();
    shape[0] = count;
    all_indices[rank] = at::empty({indices.size(0), count}, indices.options());
    all_values[rank] = at::empty(shape, values.options());
  }
  gather(group, all_indices, indices, waits);
  gather(group, all_values, values, waits);
  const auto part = [&](int rank) {
    return at::_sparse_coo_tensor_unsafe(
        all_indices[rank], all_values[rank], mine.sizes(), mine.options(), /*is_coalesced=*/true);
  };
  at::Tensor sum = part(0);
  for (int rank = 1; rank < size; ++rank) {
    sum = sum + part(rank);
  }
  tensor.copy_(sum.coalesce());
  std::vector<c10::Device> devices;
  if (!tensor.is_cpu()) {
    devices.push_back(tensor.device());
  }
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
  future->markCompleted(at::IValue(std::vector<at::Tensor>{tensor}));
  return c10d::Work::create_from_future(future);
}

} // namespace flagos
