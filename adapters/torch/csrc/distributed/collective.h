// SPDX-License-Identifier: Apache-2.0
// One call of a collective with everything it needs: addresses, the tensors that own them, and staging copies for
// tensors that are not contiguous.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <utility>
#include <vector>

#include "distributed/comm.h"

namespace flagos {

struct Collective {
  uint32_t kind = FlagosCommKind_Barrier;
  uint32_t dtype = FlagosCommDType_UInt8;
  uint32_t reduce = 0;
  int root = FLAGOS_COMM_ANY_RANK;
  int tag = 0;
  uint64_t count = 0;
  double factor = 1.0;
  uint64_t sequence = 0;
  std::chrono::milliseconds timeout{0};
  // Whether the engine reaches memory from the host.
  bool on_host = true;
  std::vector<const void*> send;
  std::vector<void*> recv;
  std::vector<uint64_t> send_counts;
  std::vector<uint64_t> recv_counts;
  // The owners of the memory behind the addresses; senders come first.
  std::vector<at::Tensor> tensors;
  // The tensor behind the last address of `recv`.
  at::Tensor result;
  // Copies to make once the call is done: to the caller's tensor, from the staged one.
  std::vector<std::pair<at::Tensor, at::Tensor>> staged;
  // A row of each rank, of which the result is made once the call is done, for a library without the reduction.
  at::Tensor gathered;
  // Whether the result is to be divided by the number of ranks then, for one without an average.
  bool divides = false;

  // Sets type and count of a part from one of the tensors.
  void part_of(const at::Tensor& tensor);
  // Addresses of a tensor that goes out, of one that comes in, and of one that is both.
  void add_send(const at::Tensor& tensor);
  void add_recv(const at::Tensor& tensor);
  void add_both(const at::Tensor& tensor);

  FlagosCollective view() const;

  // Turns a reduction into a call that gathers the data of all ranks.
  void gather(int rank, int size);

  // Reduces, divides and copies results, on this thread's current device and stream.
  void unstage(int size) const;
};

// The elements of a tensor in the units of `Collective::count`: bytes for types without a code.
uint64_t count_of(const at::Tensor& tensor);

// The code of a reduction, with its factor.
void set_reduction(Collective& collective, const c10d::ReduceOp& op);

bool is_transfer(const Collective& collective);

// Throws if what `rank` sends to itself in a batch is not what it receives from itself, in the order of the calls.
void check_transfers_to_self(const std::vector<Collective>& batch, int rank);

} // namespace flagos
