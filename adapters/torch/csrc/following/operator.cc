// SPDX-License-Identifier: Apache-2.0
#include "following/operator.h"

#include <atomic>

namespace flagos::following {

namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Only operators that draw numbers for nothing else.
std::optional<size_t> dropout_of(const c10::OperatorHandle& op) {
  const auto place = op.schema().argumentIndexWithName("dropout_p");
  return place.has_value() && op.hasTag(at::Tag::nondeterministic_seeded)
      ? std::optional<size_t>(static_cast<size_t>(*place))
      : std::nullopt;
}

} // namespace

Operator::Operator(const c10::OperatorHandle& op, uint64_t written, bool counts, const char* why_native)
    : op(op),
      id(next_id()),
      num_arguments(op.schema().arguments().size()),
      num_results(op.schema().returns().size()),
      written(written),
      counts(counts),
      why_native(why_native),
      dropout(dropout_of(op)) {}

} // namespace flagos::following
