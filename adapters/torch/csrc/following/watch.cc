// SPDX-License-Identifier: Apache-2.0
#include "following/watch.h"

#include <algorithm>
#include <utility>

namespace flagos::following {

size_t Watch::see(uint64_t op, uint64_t kinds, const std::vector<const void*>& tensors, Known known) {
  ++now_;
  Births& births = Births::instance();
  births.tick(now_);
  Call& call = calls_[now_ % kCalls];
  call = {op, kinds, arguments_noted_, tensors.size(), known, 0};
  for (const void* address : tensors) {
    arguments_[arguments_noted_++ % kArguments] = {address, births.of(address)};
  }
  ++fruitless_;
  const auto run = [&] { return lag_ * ((kShortest + lag_ - 1) / lag_); };
  if (lag_ != 0) {
    const Likeness likeness = remembers(now_ - lag_) ? compare(now_, lag_) : Likeness::kOther;
    ++matched_;
    others_ += likeness == Likeness::kOtherTensors ? 1 : 0;
    const size_t most = std::max(run() / kOthers, lag_ >= kShortest ? kFewOthers : 0);
    if (likeness == Likeness::kOther || others_ > most) {
      lag_ = 0;
    }
  }
  find_lag();
  if (lag_ == 0 || matched_ < run() || run() > kCalls / 2) {
    return 0;
  }
  const uint64_t found = run();
  turn_ = std::exchange(lag_, 0);
  found_ = now_;
  fruitless_ = 0;
  next_rest_ = kPatience;
  return found;
}

// How like a call is to the one that came `lag` calls before.
Watch::Likeness Watch::compare(uint64_t time, uint64_t lag) const {
  const Call& now = at(time);
  const Call& then = at(time - lag);
  if (now.op != then.op || now.kinds != then.kinds || now.num_arguments != then.num_arguments) {
    return Likeness::kOther;
  }
  for (size_t i = 0; i < now.num_arguments; ++i) {
    const Argument& one = arguments_[(now.first_argument + i) % kArguments];
    const Argument& other = arguments_[(then.first_argument + i) % kArguments];
    // The same call made it a turn earlier, where a cache that grows was made in the turn before its use. Weights of
    // equal layers can be as young, at the beginning of a program, but were not made in its turns.
    const bool is_made_in_turns = one.born == other.born + lag && one.born + 2 * lag > time;
    if (one.address != other.address && !is_made_in_turns) {
      return Likeness::kOtherTensors;
    }
  }
  return Likeness::kAlike;
}

// Notes the last calls by their order. If no calls repeat, looks for the lag at which the most calls up to this one do.
void Watch::find_lag() {
  if (now_ < began_ + kCompared) {
    return;
  }
  uint64_t order = 0;
  for (uint64_t back = 0; back < kCompared; ++back) {
    order = (order ^ at(now_ - back).op) * 0x9E3779B97F4A7C15ULL;
    order ^= order >> 29U;
  }
  Place& place = places_[order % kPlaces];
  const uint64_t before = place.calls == order ? place.time : 0;
  place = {order, now_};
  calls_[now_ % kCalls].before = before;
  if (lag_ != 0) {
    return;
  }
  uint64_t most = kCompared - 1;
  uint64_t time = before;
  for (size_t tried = 0; tried < kCandidates && time > began_ + kCompared; ++tried) {
    const uint64_t lag = now_ - time;
    if (lag > kCalls / 2 || !remembers(time - kCompared)) {
      return;
    }
    uint64_t alike = 0;
    while (alike < kFarthest && time - alike > began_ && remembers(time - alike) &&
           compare(now_ - alike, lag) == Likeness::kAlike) {
      ++alike;
    }
    if (alike > most) {
      most = alike;
      lag_ = lag;
      matched_ = std::min(alike, now_ - found_);
      others_ = 0;
    }
    time = at(time).before;
  }
}

std::vector<Watch::Seen> Watch::last(size_t count) const {
  std::vector<Seen> calls;
  calls.reserve(count);
  for (uint64_t time = now_ - count + 1; time <= now_; ++time) {
    const Call& call = at(time);
    Seen& seen = calls.emplace_back();
    seen.op = call.op;
    seen.follows = call.known.follows;
    if (!remembers(time - turn_)) {
      continue;
    }
    const Call& then = at(time - turn_);
    for (size_t i = 0; i < std::min(call.num_arguments, then.num_arguments); ++i) {
      const Argument& argument = arguments_[(call.first_argument + i) % kArguments];
      const void* before = arguments_[(then.first_argument + i) % kArguments].address;
      const bool is_steady = argument.address == before && argument.born + turn_ <= time;
      seen.steady.push_back(is_steady ? before : nullptr);
    }
  }
  return calls;
}

size_t Watch::num_unknown(size_t count) const {
  size_t unknown = 0;
  size_t in_loop = 0;
  size_t changed = 0;
  for (uint64_t time = now_ - count + 1; time <= now_; ++time) {
    const Known& known = at(time).known;
    unknown += known.where == Known::Where::kNowhere ? 1 : 0;
    if (known.where == Known::Where::kInLoop && turn_ >= kShortest) {
      ++in_loop;
      changed += !remembers(time - turn_) || at(time - turn_).known.numbers != known.numbers ? 1 : 0;
    }
  }
  return unknown + (changed * kOthers <= count ? in_loop : 0);
}

bool Watch::rests() {
  if (rest_ != 0) {
    --rest_;
    return true;
  }
  if (fruitless_ > kPatience) {
    fruitless_ = 0;
    forget();
    rest_ = next_rest_;
    next_rest_ = std::min<uint64_t>(next_rest_ * 2, uint64_t(1) << 24);
  }
  return false;
}

void Watch::forget() {
  lag_ = 0;
  began_ = now_;
}

} // namespace flagos::following
