// SPDX-License-Identifier: Apache-2.0
// Shapes, strides and dtypes of results before a call, kept by the signature of the call.
#pragma once

#include <mutex>
#include <unordered_map>

#include "vendor_library/call.h"

namespace flagos {

struct Result {
  c10::SmallVector<int64_t, 5> sizes;
  c10::SmallVector<int64_t, 5> strides;
  c10::ScalarType dtype;
  bool is_defined = true; // false: the caller does not ask for this one
};

using Results = c10::SmallVector<Result, 1>;

// The results of one operator. May be used by several threads at once.
class Inference {
 public:
  // The results of a call whose arguments begin at `first` of the stack. Refuses where torch cannot tell them, for
  // instance because the arguments are wrong.
  Refusal
  results(const Form& form, const LibraryCall& call, const torch::jit::Stack& stack, size_t first, Results& results);

 private:
  // By rule: results of pointwise operators on contiguous tensors have the shape that the arguments broadcast to, and
  // are contiguous. Only their dtype is asked of torch, once for each combination of dtypes.
  bool by_rule(const Form& form, const LibraryCall& call, Results& results);

  template <class Value>
  using BySignature = std::unordered_map<uint64_t, std::pair<CallSignature, Value>>;
  std::mutex mutex_;
  BySignature<Results> known_;
  BySignature<c10::ScalarType> dtypes_;
};

} // namespace flagos
