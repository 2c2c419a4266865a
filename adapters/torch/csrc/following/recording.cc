// SPDX-License-Identifier: Apache-2.0
// Calls that run as they come, and are captured for later turns.
#include <algorithm>
#include <exception>
#include <utility>

#include "following/follower.h"
#include "following/storage.h"
#include "runtime/pool_memory.h"
#include "runtime/scoped.h"

namespace flagos::following {

namespace {

constexpr size_t kMostChunks = 4;           // that begin with one call
constexpr int64_t kMostGraphs = 512;        // where each keeps streams of the hardware, of which there are some 2,000
constexpr uint8_t kMostLooks = 3;           // at how long tensors of a run live
constexpr size_t kLarge = size_t(64) << 20; // bytes of a plan that may not fit beside what the pool keeps
constexpr uint8_t kMostLent = 2;            // times, behind which a call gets no planned memory any more

} // namespace

void Follower::record(Operator& op, c10::ArrayRef<c10::IValue> arguments, bool plain, Record*& record) {
  if (C10_UNLIKELY(blocks_->have_grown()) && open_ == nullptr) { // graphs end while nobody captures
    give_back_unwanted();
  }
  Position& position = place_.position();
  const bool is_known = place_.trace->trust.holds();
  const bool is_lent = position.lent >= kMostLent;
  const bool joins = plain && is_known && !is_lent && position.planned && position.never == nullptr &&
      position.misses.is_over(now()) &&
      ((open_ != nullptr && !position.begins && open_->calls.size() < kMostCalls) || position.captures.is_over(now()));
  if (!joins) {
    close();
    refuse(
        op,
        op.why_native != nullptr              ? op.why_native
            : op.draws(arguments)             ? "random numbers"
            : !plain                          ? "arguments of other kinds"
            : !is_known                       ? kNew
            : is_lent                         ? "memory that others know"
            : position.never != nullptr       ? position.never
            : !position.planned               ? "not repeated often enough yet"
            : !position.misses.is_over(now()) ? "calls whose arguments change"
                                              : "captured before, in vain");
  } else {
    if (open_ != nullptr && (position.begins || open_->calls.size() == kMostCalls)) {
      close();
    }
    if (open_ == nullptr) {
      position.captures.fail(now(), place_.trace->positions.size());
      open();
    }
  }
  record_.op = &op;
  record_.words = key_.words().vec();
  record_.position = &position;
  record_.joins = joins;
  record_.script.reset();
  if (is_known && !waits_for_plan()) {
    const bool looks = looks_at_lives();
    if (!is_lent) {
      record_.script.emplace(*blocks_, position, where_, looks);
      position.planned = !looks;
    }
  }
  record = &record_;
  place_.at = place_.trace->after(place_.at);
}

// Whether two turns were seen that follow each other, up to this call.
bool Follower::has_seen_turns() const {
  const Trace& trace = *place_.trace;
  return trace.seen == 2 * trace.positions.size() && held_ >= trace.seen;
}

// Whether the memory is planned at a later call: what lives of the last turn is there beside the plan.
bool Follower::waits_for_plan() {
  Trace& trace = *place_.trace;
  if (trace.is_planned || !has_seen_turns()) {
    return false;
  }
  if (!trace.quietest.has_value()) {
    std::vector<size_t> places; // of all lives
    std::vector<std::shared_ptr<Life>> lives;
    for (size_t at = 0; at < trace.positions.size(); ++at) {
      const auto& here = trace.positions[at].lives;
      lives.insert(lives.end(), here.begin(), here.end());
      places.insert(places.end(), here.size(), at);
    }
    trace.quietest = lives.empty() ? place_.at : places[Blocks::quietest(lives, trace.second - trace.first)];
  }
  return place_.at != *trace.quietest;
}

// Whether the call is one of the two of its place that tell how long tensors live.
bool Follower::looks_at_lives() {
  Trace& trace = *place_.trace;
  Position& position = place_.position();
  if (trace.is_planned) {
    return false;
  }
  if (position.seen == 2) {
    if (has_seen_turns() || trace.looks == kMostLooks) {
      plan_memory(trace);
      return false;
    }
    trace.seen = 0;
    trace.quietest.reset();
    for (Position& each : trace.positions) {
      each.seen = 0;
      each.lives.clear();
    }
  }
  if (trace.seen == 0) {
    ++trace.looks;
    trace.first = Life::now();
  } else if (trace.seen == trace.positions.size()) {
    trace.second = Life::now();
  }
  ++position.seen;
  ++trace.seen;
  return true;
}

void Follower::plan_memory(Trace& trace) {
  trace.is_planned = true;
  std::vector<std::shared_ptr<Life>> lives;
  for (const Position& position : trace.positions) {
    lives.insert(lives.end(), position.lives.begin(), position.lives.end());
    if (position.lent != 0) {
      std::fill(lives.end() - static_cast<ptrdiff_t>(position.lives.size()), lives.end(), nullptr);
    }
  }
  std::vector<Block*> blocks(lives.size(), nullptr);
  if (has_seen_turns()) {
    const Scoped inside(inside_, true); // where no memory is left, this run stays
    try {
      blocks = blocks_->plan(lives, trace.second - trace.first, [&](size_t size) {
        if (size >= kLarge) {
          native->give_back_cached();
        }
        return allocate_block(size, where_);
      });
    } catch (const c10::OutOfMemoryError&) { // each call asks for its own then
    }
  }
  auto next = blocks.begin();
  for (Position& position : trace.positions) {
    const auto end = next + static_cast<ptrdiff_t>(position.lives.size());
    position.blocks.assign(next, end);
    position.lives.clear();
    next = end;
  }
}

void Follower::open() {
  open_ = std::make_unique<Chunk>();
  open_->trace = place_.trace;
  open_->start = place_.at;
  bad_ = false;
  if (capturer_ != nullptr) {
    capturer_->begin(where_.device);
  }
  set_pending(true);
}

// Ends the chunk that is being captured. Where its calls did not run as they came, they run now.
void Follower::close() {
  if (open_ == nullptr) {
    return;
  }
  std::unique_ptr<Chunk> chunk = std::move(open_);
  const Scoped<const Chunk*> busy(busy_, chunk.get());
  if (capturer_ != nullptr) {
    chunk->launchable = capturer_->end();
    if (chunk->launchable != nullptr) {
      const OnStream on(where_);
      chunk->launchable->launch();
    } else {
      TORCH_INTERNAL_ASSERT(!bad_, "flagos: calls were captured that can be neither launched nor repeated");
      run(chunk->calls, chunk->calls.size());
      bad_ = true;
    }
  }
  launched();
  if (bad_ || chunk->calls.size() < 2) {
    return;
  }
  if (afterwards_ != nullptr) {
    if (graphs_ >= kMostGraphs) {
      return;
    }
    chunk->launchable = capture(*chunk);
    if (chunk->launchable == nullptr) {
      return;
    }
  }
  ++captured_;
  ++graphs_;
  ++chunk->trace->in_vain;
  chunk->used = now();
  auto& chunks = chunk->trace->positions[chunk->start].chunks;
  if (chunks.size() == kMostChunks) {
    chunks.erase(chunks.begin());
    --graphs_;
  }
  chunks.push_back(std::move(chunk));
}

// Captures a chunk whose calls have run, by repeating them. Null if one of them cannot be captured, which no chunk will
// have any more.
std::unique_ptr<Launchable> Follower::capture(const Chunk& chunk) {
  const std::unique_lock<std::shared_mutex> nobody_waits(waits_for_device);
  const Scoped inside(inside_, true);
  size_t captured = 0;
  std::unique_ptr<Launchable> launchable;
  try {
    afterwards_->begin(where_.device);
    afterwards_->enter();
    try {
      while (captured < chunk.calls.size() && chunk.calls[captured].queue_again(where_.device)) {
        ++captured;
      }
    } catch (const std::exception&) { // the call that is next: it asks more of the device than a capture allows
    }
    afterwards_->leave();
    launchable = afterwards_->end();
  } catch (const c10::Error& error) {
    TORCH_WARN_ONCE("flagos: automatic graphs cannot capture: ", error.what_without_backtrace());
    return nullptr;
  }
  if (captured == chunk.calls.size()) {
    return launchable;
  }
  const size_t place = chunk.trace->after(chunk.start, captured);
  chunk.trace->positions[place].never = "operators that cannot be captured";
  chunk.trace->positions[chunk.start].captures = {};
  return nullptr;
}

void Follower::serving(bool now) {
  inside_ = now;
  planned_memory = now && record_.script.has_value() ? &*record_.script : nullptr;
  waited_ = now ? times_waited : waited_;
  if (is_deferred()) {
    now ? capturer_->enter() : capturer_->leave();
  }
}

void Follower::note(const torch::jit::Stack& arguments, const torch::jit::Stack& stack) {
  const c10::ArrayRef<c10::IValue> results =
      c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - record_.op->num_results);
  const auto own = [](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != kFlagos || !tensor.has_storage()) {
      return;
    }
    if (const c10::DataPtr* owned = owned_memory(tensor.storage().data_ptr()); owned != nullptr) {
      if (Block* block = block_of(*owned); block != nullptr) {
        block->belongs_to(tensor.storage());
      }
    }
  };
  for (const c10::IValue& result : results) {
    if (result.isTensor()) {
      own(result.toTensor());
    } else if (result.isTensorList()) {
      for (const c10::IValue& each : result.toListRef()) {
        own(each.toTensor());
      }
    }
  }
  if (!record_.script.has_value()) {
    return;
  }
  if (times_waited != waited_) {
    record_.position->never = "the host takes part";
    close();
    return;
  }
  if (!record_.joins || open_ == nullptr) {
    return;
  }
  Call call;
  call.op = record_.op;
  call.words = std::move(record_.words);
  call.blocks = record_.script->used();
  // What no result has and nobody gave back is a workspace of the native library, which keeps it.
  std::erase_if(call.blocks, [](Block* block) {
    const bool kept = block != nullptr && block->is_live() && block->owner.expired();
    if (kept) {
      block->lend();
    }
    return kept;
  });
  const bool touches_lent = std::any_of(key_.addresses().begin(), key_.addresses().end(), [](const void* address) {
    return LentMemory::instance().has(address);
  });
  const bool known = std::find(call.blocks.begin(), call.blocks.end(), nullptr) == call.blocks.end() && !touches_lent &&
      (capturer_ == nullptr || !capturer_->took_other_memory());
  if (!known || !call.describe(arguments, results)) {
    bad_ = capturer_ != nullptr; // it was captured with the others
    record_.position->never = "results that graphs cannot give";
    close();
    return;
  }
  open_->familiar |= record_.familiar;
  addresses_.insert(key_.addresses().begin(), key_.addresses().end());
  open_->calls.push_back(std::move(call));
}

void Follower::give_up() {
  record_.op->why_native = "operators that cannot be captured";
  record_.joins = false;
  close();
}

void Follower::lend_arguments(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      lend_memory_of(value.toTensor());
    } else if (value.isList()) { // of tensors that may be none, too
      lend_arguments(value.toListRef());
    }
  }
}

} // namespace flagos::following
