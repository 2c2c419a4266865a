// SPDX-License-Identifier: Apache-2.0
#include "following/operator.h"

#include <atomic>
#include <utility>

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

Operator::Operator(
    const c10::OperatorHandle& op,
    uint64_t written,
    bool counts,
    const char* why_native,
    Repeats repeats)
    : op(op),
      id(next_id()),
      num_arguments(op.schema().arguments().size()),
      num_results(op.schema().returns().size()),
      written(written),
      counts(counts),
      multiplies(!op.hasTag(at::Tag::pointwise)),
      why_native(why_native),
      repeats(std::move(repeats)),
      dropout(dropout_of(op)) {
  Operators::instance().add(*this);
}

Operators& Operators::instance() {
  static auto* operators = new Operators(); // never destroyed, as kernels are
  return *operators;
}

void Operators::add(const std::string& name, Make make) {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_[name].make = make;
}

void Operators::add(Operator& op) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (op.repeats) {
    repeating_.push_back(&op);
  } else {
    entries_[c10::toString(op.op.operator_name())].op = &op;
  }
}

Operator* Operators::find(const std::string& name) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.op != nullptr) {
    return found == entries_.end() ? nullptr : found->second.op;
  }
  const Make make = found->second.make;
  lock.unlock(); // it adds what it makes
  return &make();
}

std::vector<const Operator*> Operators::made() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<const Operator*> made = repeating_;
  for (const auto& [name, entry] : entries_) {
    if (entry.op != nullptr) {
      made.push_back(entry.op);
    }
  }
  return made;
}

} // namespace flagos::following
