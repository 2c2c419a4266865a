// SPDX-License-Identifier: Apache-2.0
#include "following/follower.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "following/modes.h"
#include "runtime/allocator.h"
#include "runtime/scoped.h"

namespace flagos::following {

Follower& Follower::instance() {
  static auto* follower = new Follower(); // never destroyed: calls may come after static destruction
  return *follower;
}

// ---- calls ----

bool Follower::begin(Operator& op, torch::jit::Stack& stack, torch::jit::Stack& arguments, Record*& record) {
  if (inside_) {
    return false;
  }
  ++calls_;
  const auto thread = std::this_thread::get_id();
  if (C10_UNLIKELY(thread != thread_)) {
    cut("another thread");
    thread_ = thread;
  }
  const auto on_stack = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - op.num_arguments);
  const bool plain = key_.read(op.id, Modes::now(op.multiplies), stack, op.num_arguments) && op.why_native == nullptr &&
      !op.draws(on_stack);
  if (C10_UNLIKELY(switches_stream(op))) {
    lend_arguments(on_stack);
    return false;
  }
  if (C10_UNLIKELY(native->is_capturing(where_.device))) { // the program's graph will use this memory
    cut("a graph of the program");
    lend_arguments(on_stack);
    return false;
  }
  if (C10_UNLIKELY(!stranded_.empty()) && chunk_ == nullptr && open_ == nullptr) {
    leave_dropped_plans();
  }
  recent_.push(op.id);
  if (chunk_ != nullptr) {
    if (continues(plain)) {
      take(stack, arguments);
      return true;
    }
    diverge("a call that differs", /*at_a_call=*/true);
  }
  const bool is_located = locate(op);
  if (is_located && starts_chunk(plain)) {
    take(stack, arguments);
    return true;
  }
  const bool familiar = is_located && is_familiar();
  if (watches(op)) {
    return false;
  }
  if (is_located) {
    record_.familiar = familiar;
    this->record(op, on_stack, plain, record);
  } else {
    refuse(op, op.why_native != nullptr ? op.why_native : kNew);
  }
  return false;
}

void Follower::end() {
  record_.script.reset();
  if (C10_UNLIKELY(late_ != nullptr && calls_ > late_since_)) {
    const Chunk* late = std::exchange(late_, nullptr);
    run(late->calls, late->calls.size());
  }
}

// ---- following ----

bool Follower::continues(bool plain) {
  const Call& call = chunk_->calls[followed_];
  const Scoped<const Chunk*> busy(busy_, chunk_);
  return plain && call.words == key_.words() && make_room(call);
}

// Whether the call begins a chunk that is followed from now on.
bool Follower::starts_chunk(bool plain) {
  const auto known = [&]() -> Chunk* {
    const auto& chunks = place_.position().chunks;
    const auto found = std::find_if(
        chunks.begin(), chunks.end(), [&](const auto& chunk) { return chunk->calls[0].words == key_.words(); });
    return found != chunks.end() ? found->get() : nullptr;
  };
  if (!plain || known() == nullptr) {
    return false;
  }
  close(); // the chunk that is being captured ends where a known one begins
  Chunk* chunk = known();
  const Scoped<const Chunk*> busy(busy_, chunk);
  if (chunk == nullptr || !make_room(chunk->calls[0])) {
    return false;
  }
  chunk_ = chunk;
  followed_ = 0;
  set_pending(true);
  return true;
}

// Follows the call.
void Follower::take(torch::jit::Stack& stack, torch::jit::Stack& arguments) {
  const Call& call = chunk_->calls[followed_];
  if (C10_UNLIKELY(!chunk_->has_paid())) {
    run_ = std::max(run_, watch(*call.op, {Watch::Known::Where::kInRun, chunk_->trace->number}));
  }
  const auto first = stack.end() - static_cast<ptrdiff_t>(call.op->num_arguments);
  arguments.assign(std::make_move_iterator(first), std::make_move_iterator(stack.end()));
  stack.erase(first, stack.end());
  const Trace* trace = chunk_->trace;
  for (Block* block : call.blocks) {
    block->maker = &trace->positions[trace->after(chunk_->start, followed_)];
  }
  call.make_results(arguments, stack, where_.device);
  ++followed_;
  ++followed_calls_;
  ++call.op->followed;
  if (followed_ == chunk_->calls.size()) {
    launch();
  }
}

// Whether all blocks that the call writes can be written: what lives there moves.
bool Follower::make_room(const Call& call) {
  return std::all_of(call.blocks.begin(), call.blocks.end(), [&](Block* block) {
    return block->is_free() || C10_UNLIKELY(fault_ == 2) || vacate(block);
  });
}

void Follower::launch() {
  Chunk* chunk = std::exchange(chunk_, nullptr);
  const Scoped<const Chunk*> busy(busy_, chunk);
  place_ = {chunk->trace, chunk->trace->after(chunk->start, chunk->calls.size())};
  held_ += chunk->calls.size();
  if (chunk->familiar) {
    chunk->trace->trust.gain();
  }
  chunk->trace->used = chunk->used = now();
  const bool is_new = !chunk->has_paid();
  chunk->gain();
  if (is_new && chunk->has_paid()) { // what a later model needs here is captured at once
    Position& position = chunk->trace->positions[chunk->start];
    position.captures = position.misses = {};
    chunk->trace->in_vain -= std::min<size_t>(chunk->trace->in_vain, 8);
  }
  ++launched_;
  launched_calls_ += static_cast<int64_t>(chunk->calls.size());
  if (C10_UNLIKELY(fault_ == 1 && launched_ % 2 == 0)) {
    late_ = chunk;
    late_since_ = calls_;
  } else if (chunk->launchable != nullptr) {
    const OnStream on(where_);
    chunk->launchable->launch();
  } else {
    run(chunk->calls, chunk->calls.size());
  }
  launched();
  watch_followed(chunk->trace, chunk->start, chunk->calls.size(), is_new);
}

// Has the calls that were followed and not launched run natively.
void Follower::diverge(const char* why, bool at_a_call) {
  Chunk* chunk = std::exchange(chunk_, nullptr);
  const Scoped<const Chunk*> busy(busy_, chunk);
  place_ = {chunk->trace, chunk->trace->after(chunk->start, followed_)};
  diverged_calls_ += static_cast<int64_t>(followed_);
  const Trace* trace = chunk->trace;
  const size_t start = chunk->start;
  const bool is_new = !chunk->has_paid();
  ++cuts_[std::string("launched early: ") + why];
  const auto settle = [&] {
    launched();
    Position& position = place_.position();
    if (at_a_call && position.op == key_.words()[0]) {
      position.misses.fail(now(), position.misses.failures == 0 ? 0 : 2 * chunk->trace->positions.size());
    }
    if (chunk->lose()) { // two chunks take its place
      position.begins = true;
      chunk->trace->positions[chunk->start].captures.until = 0;
      drop(chunk);
    }
  };
  try {
    run(chunk->calls, followed_);
  } catch (...) {
    settle();
    throw;
  }
  settle();
  watch_followed(trace, start, followed_, is_new);
}

void Follower::run(const std::vector<Call>& calls, size_t count) {
  const OnStream on(where_);
  drain_current_stream(where_.device);
  const Scoped inside(inside_, true); // kernels of a library call flagos' own operators
  std::exception_ptr failure;         // the first; what comes behind it was queued behind it
  for (size_t i = 0; i < count; ++i) {
    try {
      calls[i].run(where_.device);
    } catch (...) {
      if (failure == nullptr) {
        failure = std::current_exception();
      }
    }
  }
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

void Follower::drop(Chunk* chunk) {
  auto& chunks = chunk->trace->positions[chunk->start].chunks;
  chunks.erase(std::find_if(chunks.begin(), chunks.end(), [&](const auto& each) { return each.get() == chunk; }));
  --graphs_;
}

// Nothing is pending any more.
void Follower::launched() {
  set_pending(false);
  for (c10::StorageImpl* twin : std::exchange(kept_, {})) {
    c10::raw::intrusive_ptr::decref(twin);
  }
  for (void* data : std::exchange(kept_memory_, {})) {
    free_from_pool(data);
  }
}

} // namespace flagos::following
