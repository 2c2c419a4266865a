// SPDX-License-Identifier: Apache-2.0
// Which run the calls belong to, and where they are in it.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "following/follower.h"

namespace flagos::following {

namespace {

constexpr size_t kMostTraces = 24;
constexpr int64_t kMoved = 4096; // calls on another stream, after which that one is followed

} // namespace

// Whether the call is on another stream than those that are followed.
bool Follower::switches_stream(const Operator& op) {
  const c10::DeviceIndex device = key_.device() >= 0 ? key_.device() : current_device();
  const Where where{device, current_stream(device)};
  if (C10_LIKELY(where == where_)) {
    elsewhere_ = 0;
    return false;
  }
  cut("another stream");
  if (!traces_.empty() && ++elsewhere_ < kMoved) {
    refuse(op, "another stream");
    return true;
  }
  release();
  wait_for_moves();
  last_move_ = c10::Event(kFlagos);
  elsewhere_ = 0;
  where_ = where;
  return false;
}

// Finds out where the call is in a run that repeats; false if it is in none.
bool Follower::locate(const Operator& op) {
  if (place_.trace != nullptr && place_.position().op != op.id) {
    lose_place();
  }
  if (Trace* trace = place_.trace; trace != nullptr && trace->is_misfit()) {
    lose_place();
    drop_trace(trace);
  }
  if (place_.trace == nullptr && !traces_.empty()) {
    place_ = find_again();
    if (place_.trace != nullptr) {
      place_.trace->trust.doubt();
    }
  }
  return place_.trace != nullptr;
}

// Whether the call has the tensors that its place has in each turn, from which the trust in its run follows. Behind
// half a turn the run is the program's, whose tensors are others now.
bool Follower::is_familiar() {
  Trace& trace = *place_.trace;
  const bool is_settled = held_++ > trace.positions.size() / 2;
  if (is_settled && !trace.trust.holds()) {
    trace.trust.restore();
  }
  const bool is_second_turn = is_settled && held_ <= 2 * trace.positions.size();
  std::vector<const void*>& steady = place_.position().steady;
  const std::vector<const void*>& now = key_.addresses();
  bool known = false;
  for (size_t i = 0; i < steady.size(); ++i) {
    if (steady[i] == nullptr) {
      continue;
    }
    const void* address = i < now.size() ? now[i] : nullptr;
    if (address == steady[i]) {
      known = true;
    } else if (is_settled) {
      steady[i] = is_second_turn ? address : nullptr;
    } else {
      trace.trust.lose();
      return false;
    }
  }
  if (known) {
    trace.trust.gain();
  }
  return known;
}

// Watches a call for runs that nobody knows yet. Returns the length of one that ends with it, or 0.
size_t Follower::watch(const Operator& op, Watch::Known known) {
  if (watch_ == nullptr) {
    watch_ = std::make_unique<Watch>();
  }
  if (watch_->rests()) {
    return 0;
  }
  if (known.where != Watch::Known::Where::kInRun) {
    known.numbers = key_.numbers();
  }
  return watch_->see(op.id, key_.kinds(), key_.addresses(), known);
}

// Watches a call that is not followed. Returns whether a run has ended with it that is followed now.
bool Follower::watches(const Operator& op) {
  using Where = Watch::Known::Where;
  const bool is_known = place_.trace != nullptr && place_.trace->trust.holds();
  const Where where = !is_known ? Where::kNowhere : place_.trace->is_loop ? Where::kInLoop : Where::kInRun;
  return learn(watch(op, {where, {}}));
}

namespace {

// Calls that were followed, as the watch sees them: a number that no operator has.
struct Followed {
  static constexpr uint64_t kMark = uint64_t(1) << 63U;
  static constexpr unsigned kCount = 6;  // bits
  static constexpr unsigned kStart = 28; // bits

  uint64_t trace;
  size_t start;
  size_t count;

  uint64_t code() const {
    return kMark | trace << (kStart + kCount) | start << kCount | count;
  }
  static std::optional<Followed> of(uint64_t code) {
    if ((code & kMark) == 0) {
      return std::nullopt;
    }
    const auto bits = [&](unsigned from, unsigned count) { return code >> from & ((uint64_t(1) << count) - 1); };
    return Followed{bits(kStart + kCount, 63 - kStart - kCount), bits(kCount, kStart), bits(0, kCount)};
  }
};
static_assert(kMostCalls < size_t(1) << Followed::kCount);

// The shortest part that is repeated in all of the calls, of which there are `turns`.
void keep_one_period(std::vector<Watch::Seen>& calls, size_t turns) {
  const size_t size = calls.size();
  const auto repeats = [&](size_t period) {
    for (size_t i = period; i < size; ++i) {
      if (calls[i].op != calls[i - period].op || calls[i].steady != calls[i - period].steady) {
        return false;
      }
    }
    return true;
  };
  size_t period = 1;
  while (period * turns < size && (size % period != 0 || !repeats(period))) {
    ++period;
  }
  const size_t kept = std::max(period, period * (Watch::kShortest / period));
  for (size_t i = kept; i < size; ++i) {
    auto& steady = calls[i % kept].steady;
    for (size_t each = 0; each < steady.size(); ++each) {
      if (each >= calls[i].steady.size() || calls[i].steady[each] != steady[each]) {
        steady[each] = nullptr;
      }
    }
  }
  calls.resize(kept);
}

} // namespace

// Has the watch know calls that were followed, so that it sees what comes between them: as one call, unless it saw
// each.
void Follower::watch_followed(const Trace* trace, size_t start, size_t count, bool one_by_one) {
  size_t run = std::exchange(run_, 0);
  if (!one_by_one && count != 0 && watch_ != nullptr && !watch_->rests()) {
    run =
        watch_->see(Followed{trace->number, start, count}.code(), 0, {}, {Watch::Known::Where::kInRun, trace->number});
  }
  learn(run);
}

// Looks at a run of the last `run` calls that the watch saw, and follows it if enough of it is new. Then runs of which
// it has half or more are forgotten.
bool Follower::learn(size_t run) {
  if (run == 0) {
    return false;
  }
  std::vector<Watch::Seen> calls;
  std::unordered_map<Trace*, size_t> parts; // with how many of these calls were followed in each
  for (Watch::Seen& seen : watch_->last(run)) {
    const auto trace =
        std::find_if(traces_.begin(), traces_.end(), [&](const auto& each) { return each->number == seen.follows; });
    const std::optional<Followed> followed = Followed::of(seen.op);
    if (trace != traces_.end()) {
      parts[trace->get()] += followed.has_value() ? followed->count : 1;
    }
    if (!followed.has_value()) {
      calls.push_back(std::move(seen));
      continue;
    }
    if (trace == traces_.end()) {
      return false;
    }
    for (size_t i = 0; i < followed->count; ++i) {
      const Position& position = (*trace)->positions[(*trace)->after(followed->start, i)];
      calls.push_back({position.op, position.steady, {}});
    }
  }
  // Many turns of a known run take its place only if much of them is new: they would be long to learn.
  const Trace* known = place_.trace != nullptr ? place_.trace : lost_.trace;
  const bool is_many_turns = known != nullptr && calls.size() >= 4 * known->positions.size();
  const size_t enough = is_many_turns ? std::min(calls.size() / 2, 4 * known->positions.size()) : calls.size() / 16;
  if (watch_->num_unknown(run) < enough) {
    return false;
  }
  keep_one_period(calls, run / watch_->turn());
  if (place_.trace != nullptr && place_.trace->is_loop) {
    parts[place_.trace] = place_.trace->positions.size();
  }
  lose_place();
  for (const auto& [part, followed] : parts) {
    if (2 * followed >= part->positions.size()) { // else it is a run beside this one, as training is beside evaluation
      drop_trace(part);
    }
  }
  start_trace(std::move(calls));
  return true;
}

// The place that the last operators lead to: the next one in the run that was left, or one in another. Where runs have
// parts in common, as training and evaluation do, the place to which more of them lead comes first.
Place Follower::find_again() const {
  const auto [begin, end] = places_.equal_range(recent_.order());
  Place best;
  std::tuple<bool, size_t, uint64_t> nearest;
  for (auto found = begin; found != end; ++found) {
    const Place& place = found->second;
    const size_t length = place.trace->positions.size();
    const bool is_left = place.trace == lost_.trace;
    const bool leads = recent_.leads_to(place);
    if (!is_left && !leads) {
      continue;
    }
    const size_t ahead = is_left ? (place.at + length - lost_.at) % length : length;
    const std::tuple here{!leads, ahead, now() - place.trace->used};
    if (best.trace == nullptr || here < nearest) {
      best = place;
      nearest = here;
    }
  }
  return best;
}

void Follower::lose_place() {
  close();
  lost_ = std::exchange(place_, {});
  held_ = 0;
}

void Follower::start_trace(std::vector<Watch::Seen> calls) {
  lose_place();
  if (traces_.size() >= kMostTraces) {
    drop_oldest_trace();
  }
  const size_t length = calls.size();
  auto trace = std::make_unique<Trace>();
  for (Watch::Seen& call : calls) {
    Position& position = trace->positions.emplace_back();
    position.op = call.op;
    position.steady = std::move(call.steady);
  }
  trace->number = static_cast<uint64_t>(traces_found_);
  trace->is_loop = watch_->turn() < Watch::kShortest;
  trace->used = now();
  Recent recent;
  for (size_t at = 0; at < length + Recent::kOrdered - 1; ++at) {
    recent.push(trace->positions[at % length].op);
    if (at >= Recent::kOrdered - 1) {
      places_.emplace(recent.order(), Place{trace.get(), at % length});
    }
  }
  place_ = {trace.get(), 0};
  traces_.push_back(std::move(trace));
  ++traces_found_;
  if (blocks_ == nullptr) {
    blocks_ = std::make_unique<Blocks>();
  }
  Capturer* capturer = native->capturer();
  (capturer != nullptr && capturer->captures_afterwards() ? afterwards_ : capturer_) = capturer;
}

void Follower::drop_oldest_trace() {
  const auto oldest = std::min_element(
      traces_.begin(), traces_.end(), [](const auto& one, const auto& other) { return one->used < other->used; });
  drop_trace(oldest->get());
}

void Follower::drop_trace(Trace* trace) {
  if (late_ != nullptr && late_->trace == trace) {
    late_ = nullptr;
  }
  for (const Position& position : trace->positions) {
    graphs_ -= static_cast<int64_t>(position.chunks.size());
  }
  std::erase_if(places_, [&](const auto& place) { return place.second.trace == trace; });
  if (lost_.trace == trace) {
    lost_ = {};
  }
  std::erase_if(traces_, [&](const auto& other) { return other.get() == trace; });
  const std::unordered_set<const Block*> blocks = wanted();
  for (Block* block : blocks_->held()) {
    if (block->is_in_plan() && block->is_live() && !blocks.contains(block)) {
      block->hold();
      stranded_.push_back(block);
    }
  }
  blocks_->keep(blocks);
}

} // namespace flagos::following
