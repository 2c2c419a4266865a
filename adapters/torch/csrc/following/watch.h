// SPDX-License-Identifier: Apache-2.0
// Finds out that the calls of a stream repeat.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/births.h"

namespace flagos::following {

// An argument in memory: where it is, and when that memory became a tensor's.
struct Argument {
  const void* address = nullptr;
  uint64_t born = 0;
};

// Two calls are alike if they have the same operator, with arguments of the same kinds: the same tensors, or tensors
// that the same call made a turn earlier, in the last two turns. Sizes may differ, as those of a cache that grows do.
// Calls of equal layers are not alike, because their weights are others. In a run that repeats, few calls may have
// tensors of others, such as a batch or a position out of a list.
class Watch {
 public:
  static constexpr size_t kShortest = 32; // calls that are worth a graph

  // Whether a call has a place in a run that was found before, or in a loop: its turns were shorter than kShortest.
  struct Known {
    enum class Where : uint8_t { kNowhere, kInLoop, kInRun };
    Where where = Where::kNowhere;
    std::optional<uint64_t> follows; // the number of the run in which it was followed
    uint64_t numbers = 0;            // the hash of the call's, unless it is in a run
  };

  // Notes a call, of the operator `op`, `kinds` of arguments, and these tensors. Calls that were followed together may
  // be one call. Returns the length of a run, up to this call, that the calls before it repeated at least once; else 0.
  size_t see(uint64_t op, uint64_t kinds, const std::vector<const void*>& tensors, Known known);

  struct Seen {
    uint64_t op = 0;
    std::vector<const void*> steady; // the memory of its tensors, null for those that the turn before had not
    std::optional<uint64_t> follows;
  };
  // The last calls, the oldest first; `count` is what `see` returned.
  std::vector<Seen> last(size_t count) const;

  // How many calls a turn of that run has.
  size_t turn() const {
    return turn_;
  }

  // How many of the last calls, a run, were not known. Neither are those of a loop that is a part of longer turns, in
  // which the numbers are the same.
  size_t num_unknown(size_t count) const;

  // Whether to watch at all: a stream that never repeats is watched rarely.
  bool rests();

  void forget();

 private:
  static constexpr size_t kCalls = size_t(1) << 15; // the longest run is half of it
  static constexpr size_t kArguments = size_t(1) << 17;
  static constexpr size_t kPlaces = size_t(1) << 14;
  static constexpr size_t kCompared = 4;     // calls whose order tells where a run may have begun
  static constexpr size_t kCandidates = 128; // so many places are looked at,
  static constexpr size_t kFarthest = 128;   // so many calls back
  static constexpr size_t kOthers = 16;      // one call in so many may have other tensors; in a layer more have weights
  static constexpr size_t kFewOthers = 4;    // in a short turn: forward and backward read a batch
  static constexpr size_t kPatience = size_t(1) << 16;

  struct Call {
    uint64_t op = 0;
    uint64_t kinds = 0;
    uint64_t first_argument = 0; // counted since the beginning
    size_t num_arguments = 0;
    Known known;
    uint64_t before = 0; // the last time at which the same calls had come in this order
  };
  struct Place {
    uint64_t calls = 0; // the hash of some calls in their order
    uint64_t time = 0;  // of the last of them
  };

  const Call& at(uint64_t time) const {
    return calls_[time % kCalls];
  }
  bool remembers(uint64_t time) const {
    return time > 0 && now_ - time < kCalls && arguments_noted_ - at(time).first_argument < kArguments;
  }
  enum class Likeness : uint8_t { kOther, kOtherTensors, kAlike };
  Likeness compare(uint64_t time, uint64_t lag) const;
  void find_lag();

  std::vector<Call> calls_ = std::vector<Call>(kCalls);
  std::vector<Argument> arguments_ = std::vector<Argument>(kArguments);
  std::array<Place, kPlaces> places_;
  uint64_t arguments_noted_ = 0;
  uint64_t now_ = 0;
  uint64_t began_ = 0;   // calls before are forgotten
  uint64_t lag_ = 0;     // how long ago the calls were that repeat; 0 while none do
  uint64_t matched_ = 0; // calls that repeated since
  uint64_t others_ = 0;  // of these, calls with other tensors
  uint64_t turn_ = 0;    // of the run that was found last
  uint64_t found_ = 0;   // when that was
  uint64_t fruitless_ = 0;
  uint64_t rest_ = 0; // calls that will not be watched
  uint64_t next_rest_ = kPatience;
};

} // namespace flagos::following
