// SPDX-License-Identifier: Apache-2.0
#include "following/operator.h"

#include <atomic>

namespace flagos::following {

namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

} // namespace

Operator::Operator(const c10::OperatorHandle& op, uint64_t written, bool counts, const char* why_native)
    : op(op),
      id(next_id()),
      num_arguments(op.schema().arguments().size()),
      num_results(op.schema().returns().size()),
      written(written),
      counts(counts),
      why_native(why_native) {}

} // namespace flagos::following
