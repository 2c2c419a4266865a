// SPDX-License-Identifier: Apache-2.0
// What automatic graphs know of a program: runs of calls that repeat, and the chunks of them that are launched
// together.
#pragma once

#include <ATen/core/stack.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "following/memory.h"
#include "following/operator.h"
#include "runtime/capture.h"

namespace flagos::following {

// A tensor that a call makes.
struct Made {
  Block* block = nullptr; // null for a tensor without bytes
  size_t nbytes = 0;      // of its storage
  c10::Allocator* allocator = nullptr;
  bool resizable = true;
  int64_t offset = 0;
  c10::SmallVector<int64_t, 5> sizes;
  c10::SmallVector<int64_t, 5> strides;
  caffe2::TypeMeta dtype;

  at::Tensor make(c10::DeviceIndex device) const;
};

// A result of a call.
struct Result {
  enum class What : uint8_t { kUndefined, kArgument, kMade, kList, kNumber };
  What what = What::kUndefined;
  size_t place = 0;          // among the arguments, or among what the call makes
  std::vector<Result> parts; // of a list
  c10::IValue number;        // that follows from the arguments' sizes and numbers
};

// A call in a graph.
struct Call {
  Operator* op = nullptr;
  std::vector<uint64_t> words; // its key
  torch::jit::Stack addressed; // its arguments, as tensors over addresses that hold no memory
  std::vector<Result> results;
  std::vector<Made> made;
  std::vector<Block*> blocks; // of results and of workspaces

  // Notes what a call did, after it, while it holds its arguments and results. False if it did what no graph repeats.
  bool describe(const torch::jit::Stack& arguments, c10::ArrayRef<c10::IValue> results);
  // Puts the call's results on the stack, as if it had run on these arguments.
  void make_results(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& stack, c10::DeviceIndex device) const;
  // Has the call done again, at the addresses where it was done before.
  void run(c10::DeviceIndex device) const;
  // Queues the call once more, with its results in the same blocks; false if it does not come out as before.
  bool queue_again(c10::DeviceIndex device) const;
  bool uses(const Block* block, const void* address) const;

 private:
  bool describe(const torch::jit::Stack& arguments, const c10::IValue& value, Result& result);
  torch::jit::Stack repeat(c10::DeviceIndex device) const;
  void place(const Result& result, const c10::IValue& value, c10::DeviceIndex device) const;
  bool is_in_place(const Result& result, const c10::IValue& value) const;
};

struct Trace;

constexpr size_t kMostCalls = 48; // of a chunk

// Calls that are launched together.
struct Chunk {
  Trace* trace = nullptr;
  size_t start = 0; // its place in the trace
  std::vector<Call> calls;
  std::unique_ptr<Launchable> launchable; // null where calls are repeated one by one
  bool familiar = false;                  // whether a call of it has the tensors that its place has in each turn
  uint32_t launched = 0;
  uint64_t used = 0; // when it was captured or launched last, in calls

  // Whether its launches were worth the capture.
  bool has_paid() const {
    return launched >= 4;
  }
  void gain() { // it was launched
    ++launched;
    score_ = std::min(score_ + 1, kMost);
  }
  // Another call came before it was finished. Returns whether this happens to one in five launches or more.
  bool lose() {
    score_ -= kBroken;
    return score_ < 0;
  }

 private:
  static constexpr int kBroken = 4;
  static constexpr int kMost = 16; // soon forgotten where another model comes
  int score_ = kBroken;
};

// After each failure the wait until the next try is twice as long.
struct Patience {
  uint64_t until = 0; // in calls
  uint8_t failures = 0;

  bool is_over(uint64_t now) const {
    return now >= until;
  }
  void fail(uint64_t now, uint64_t wait) {
    until = now + (wait << failures);
    failures = static_cast<uint8_t>(failures < 12 ? failures + 1 : failures);
  }
};

// A place in a trace.
struct Position {
  uint64_t op = 0;
  std::vector<const void*> steady;            // the memory of its arguments that are the same in each turn, or null
  std::vector<Block*> blocks;                 // what the call allocated last time, in order
  std::vector<std::shared_ptr<Life>> lives;   // of that in the first turn, as long as no memory is planned
  uint8_t seen = 0;                           // turns in which it was looked how long tensors live, two at most
  uint8_t conflicts = 0;                      // how often such a block was live
  std::vector<std::unique_ptr<Chunk>> chunks; // that begin here
  Patience captures;                          // that began here
  Patience misses;                            // the call was another than the captured one
  const char* never = nullptr;                // why no graph repeats the call
  bool planned = false;                       // whether the call was served from planned memory before
  uint8_t lent = 0;                           // how often such memory was lent
  bool begins = false;                        // whether a chunk has to end before this call
};

// Whether the calls at the places of a run are those of the run: calls of another model may come in the same order,
// with other weights.
class Trust {
 public:
  bool holds() const {
    return score_ >= 0;
  }
  // A call came with the tensors that its place has in each turn.
  void gain() {
    score_ = std::min(score_ + 1, kMost);
  }
  // It came with others. Few calls of a run do, such as those with a batch.
  void lose() {
    score_ = std::max(score_ - 2, -kMost);
  }
  // The calls have gone through much of the run.
  void restore() {
    score_ = std::max(score_, 0);
  }
  // Nobody knows whether the calls come back to the place where they have gone by their order.
  void doubt() {
    score_ = std::min(score_, 1);
  }

 private:
  static constexpr int kMost = 8;
  int score_ = kMost;
};

// A run of calls that repeats.
struct Trace {
  std::vector<Position> positions;
  uint64_t number = 0;  // among all traces that there were
  uint64_t used = 0;    // when, in calls
  bool is_loop = false; // whether its turns are so short that several make a run, which may be part of longer turns
  Trust trust;
  size_t in_vain = 0; // captures that have not paid yet, less what others paid
  // The memory of a run is planned when all its calls were seen in two turns that follow each other, at the place where
  // the least lives beside it. If the calls do not come in turns, each gets blocks of its own.
  bool is_planned = false;
  uint8_t looks = 0;              // how often two turns have begun
  size_t seen = 0;                // calls, of both turns
  uint64_t first = 0;             // the number of allocations before the first turn
  uint64_t second = 0;            // and before the second one
  std::optional<size_t> quietest; // that place, once it is known

  // Whether so much was captured in vain that the calls are likely those of a longer run.
  bool is_misfit() const {
    return in_vain > 64 + positions.size() / 8; // several times all of its calls
  }

  size_t after(size_t place, size_t calls = 1) const {
    return (place + calls) % positions.size();
  }
};

} // namespace flagos::following
