// SPDX-License-Identifier: Apache-2.0
#include "following/follower.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "following/modes.h"
#include "following/storage.h"
#include "runtime/allocator.h"
#include "runtime/pool_memory.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace flagos::following {

namespace {

constexpr size_t kMostCalls = 48; // of a chunk
constexpr size_t kMostChunks = 4; // that begin with one call
constexpr size_t kMostTraces = 24;
constexpr int64_t kMostGraphs = 512; // where each keeps streams of the hardware, of which there are some 2,000
constexpr const char* kNew = "calls that do not repeat";
constexpr uint8_t kMostLooks = 3;           // at how long tensors of a run live
constexpr size_t kLarge = size_t(64) << 20; // bytes of a plan that may not fit beside what the pool keeps
constexpr uint8_t kMostLent = 2;            // times, behind which a call gets no planned memory any more
constexpr size_t kMostMoves = 1024;         // that nobody waited for
constexpr int64_t kMoved = 4096;            // calls on another stream, after which that one is followed

// The stream that calls are followed on as the current one, for a scope.
class OnStream {
 public:
  explicit OnStream(const Where& where)
      : device_(where.device), index_(where.device), before_(current_stream(where.device)) {
    set(where.stream);
  }
  ~OnStream() {
    set(before_);
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  void set(uint64_t stream) const {
    if (current_stream(index_) != stream) {
      native->set_stream(index_, stream);
    }
  }

  DeviceScope device_;
  c10::DeviceIndex index_;
  uint64_t before_;
};

void set_pending(bool pending) {
  __atomic_store_n(&calls_pending, pending, __ATOMIC_RELEASE);
}

} // namespace

bool Recent::leads_to(const Place& place) const {
  const size_t length = place.trace->positions.size();
  for (size_t back = 0; back < ops_.size(); ++back) {
    if (place.trace->positions[(place.at + back * length - back) % length].op != ops_[back]) {
      return false;
    }
  }
  return true;
}

uint64_t Recent::order() const {
  uint64_t order = 0;
  for (size_t back = 0; back < kOrdered; ++back) {
    order = (order ^ ops_[back]) * 0x9E3779B97F4A7C15ULL;
    order ^= order >> 29U;
  }
  return order;
}

namespace {

// Memory of the pool, on the stream that is followed and not on that of a capture.
c10::DataPtr allocate_block(size_t nbytes, const Where& where) {
  struct Outside {
    PlannedMemory* script = std::exchange(planned_memory, nullptr);
    ~Outside() {
      planned_memory = script;
    }
  } const outside;
  const OnStream on(where);
  return native->planned_block(nbytes, where.device);
}

} // namespace

c10::DataPtr Script::allocate(size_t nbytes, c10::Device label) {
  if (nbytes == 0) {
    return {};
  }
  const auto allocate = [&](size_t size) { return allocate_block(size, where_); };
  if (looks_) {
    Block* block = Blocks::alone(nbytes, allocate);
    block->life = std::make_shared<Life>();
    block->life->nbytes = nbytes;
    block->life->born = Life::next();
    block->maker = &position_;
    auto& lives = position_.lives;
    if (position_.seen == 1) {
      lives.push_back(block->life);
    } else if (next_ >= lives.size() || lives[next_]->nbytes != nbytes) {
      lives.clear(); // it allocates something else in each turn
    }
    ++next_;
    c10::DataPtr data = block->take(label, native->host_computes());
    block->drop();
    return data;
  }
  std::vector<Block*>& plan = position_.blocks;
  Block* planned = next_ < plan.size() ? plan[next_] : nullptr;
  Block* block = blocks_.find(planned, position_.conflicts, nbytes, allocate);
  if (next_ < plan.size()) {
    plan[next_] = block;
  } else {
    plan.push_back(block);
  }
  ++next_;
  block->maker = &position_;
  return block->take(label, native->host_computes());
}

Follower& Follower::instance() {
  static auto* follower = new Follower(); // never destroyed: calls may come after static destruction
  return *follower;
}

namespace {

// A chunk is in use for a scope.
class Busy {
 public:
  Busy(const Chunk*& busy, const Chunk* chunk) : busy_(busy), before_(std::exchange(busy, chunk)) {}
  ~Busy() {
    busy_ = before_;
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  const Chunk*& busy_;
  const Chunk* before_;
};

} // namespace

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
  const Busy busy(busy_, chunk_);
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
  const Busy busy(busy_, chunk);
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

// Moves what lives in a block; false if something must stay.
bool Follower::vacate(Block* block) {
  std::vector<Block*> there; // held, since a move may need the memory that others give back
  for (Block* other : blocks_->held()) {
    if (other->is_live() && other->overlaps(*block)) {
      other->hold();
      there.push_back(other);
    }
  }
  bool moved = true;
  for (Block* other : there) {
    moved = moved && move(other);
    other->drop();
  }
  return moved && block->is_free();
}

// Gives a tensor that is still alive memory elsewhere; false if it must stay.
bool Follower::move(Block* block) {
  if (block->is_lent() || users_ > 1) { // another thread may be on its way to the library with the address
    return false;
  }
  const c10::intrusive_ptr<c10::StorageImpl> storage = block->owner.lock();
  if (!storage) {
    return !block->is_live();
  }
  c10::StorageImpl* owner = owner_of(storage.get());
  const bool is_twin = owner != storage.get();
  if (owner == nullptr || block_of(owner->data_ptr()) != block ||
      (is_twin && c10::raw::intrusive_ptr::use_count(owner) != 1)) {
    return false;
  }
  if (chunk_ != nullptr) { // calls that are pending may have to write it yet
    const auto pending_end = chunk_->calls.begin() + static_cast<ptrdiff_t>(followed_);
    if (std::any_of(
            chunk_->calls.begin(), pending_end, [&](const Call& call) { return call.uses(block, block->data()); })) {
      return false;
    }
  }
  wait_for_unseen();
  const OnStream on(where_);
  c10::DataPtr memory;
  try {
    memory = native->planned_block(owner->nbytes(), where_.device);
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
  native->copy_bytes(memory.get(), block->data(), owner->nbytes(), where_.device);
  owner->set_data_ptr_noswap(std::move(memory)); // which frees the block
  if (is_twin) {
    refresh_from_twin(storage.get(), owner, where_.device);
  }
  note_move(storage->data());
  return true;
}

// Others who take the address may have waited for all that was done with the tensor before it moved, and would not wait
// for the copy.
void Follower::note_move(const void* address) {
  const Scoped inside(inside_, true); // an event launches what is pending, else
  if (moves_.size() >= kMostMoves) {
    wait_for_moves();
  }
  moves_.insert(address);
  last_move_.record(c10::impl::VirtualGuardImpl(kFlagos).getStream(c10::Device(kFlagos, where_.device)));
  ++moved_;
}

// Nobody knows which memory such calls use: what moves leaves its own to others.
void Follower::wait_for_unseen() {
  if (std::exchange(has_unseen_, false)) {
    const Scoped inside(inside_, true);
    c10::impl::VirtualGuardImpl(kFlagos).synchronizeDevice(where_.device);
  }
}

bool Follower::is_on_another_stream() const {
  return !inside_ && where_.device >= 0 && current_stream(where_.device) != where_.stream;
}

void Follower::note_unseen_call() {
  if (is_on_another_stream()) {
    wait_for_moves();
    has_unseen_ = true;
  }
}

void Follower::wait_for_moves() {
  if (!moves_.empty()) {
    const Scoped inside(inside_, true);
    last_move_.synchronize();
    moves_.clear();
  }
}

void Follower::launch() {
  Chunk* chunk = std::exchange(chunk_, nullptr);
  const Busy busy(busy_, chunk);
  place_ = {chunk->trace, chunk->trace->after(chunk->start, chunk->calls.size())};
  held_ += chunk->calls.size();
  if (chunk->familiar) {
    chunk->trace->trust.gain();
  }
  chunk->trace->used = chunk->used = now();
  ++chunk->launched;
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
  watch_followed(chunk->trace, chunk->start, chunk->calls.size());
}

// Has the calls that were followed and not launched run natively.
void Follower::diverge(const char* why, bool at_a_call) {
  Chunk* chunk = std::exchange(chunk_, nullptr);
  const Busy busy(busy_, chunk);
  place_ = {chunk->trace, chunk->trace->after(chunk->start, followed_)};
  diverged_calls_ += static_cast<int64_t>(followed_);
  const Trace* trace = chunk->trace;
  const size_t start = chunk->start;
  ++cuts_[std::string("launched early: ") + why];
  const auto settle = [&] {
    launched();
    Position& position = place_.position();
    if (at_a_call && position.op == key_.words()[0]) {
      position.misses.fail(now(), position.misses.failures == 0 ? 0 : 2 * chunk->trace->positions.size());
    }
    if (++chunk->broken > 1 + chunk->launched / 4) { // two chunks take its place
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
  watch_followed(trace, start, followed_);
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

// ---- where the calls are ----

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
  if (place_.trace == nullptr) {
    recent_.push(op.id);
    if (!traces_.empty()) {
      place_ = find_again();
      if (place_.trace != nullptr) {
        place_.trace->trust.doubt();
      }
    }
  }
  return place_.trace != nullptr;
}

// Whether the call has the tensors that its place has in each turn, from which the trust in its run follows. Behind a
// whole turn the run is the program's, whose tensors are others now.
bool Follower::is_familiar() {
  Trust& trust = place_.trace->trust;
  const bool is_whole = held_++ > place_.trace->positions.size();
  if (is_whole) {
    trust.restore();
  }
  std::vector<const void*>& steady = place_.position().steady;
  const std::vector<const void*>& now = key_.addresses();
  bool known = false;
  for (size_t i = 0; i < steady.size(); ++i) {
    if (steady[i] == nullptr) {
      continue;
    }
    if (i < now.size() && now[i] == steady[i]) {
      known = true;
    } else if (is_whole) {
      steady[i] = nullptr;
    } else {
      trust.lose();
      return false;
    }
  }
  if (known) {
    trust.gain();
  }
  return known;
}

// Watches a call that is not followed, for runs that nobody knows yet. Returns whether a run has ended with it.
bool Follower::watches(const Operator& op) {
  if (watch_ == nullptr) {
    watch_ = std::make_unique<Watch>();
  }
  const bool known = place_.trace != nullptr && place_.trace->trust.holds();
  return !watch_->rests() && learn(watch_->see(op.id, key_.kinds(), key_.addresses(), known));
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

// The shortest part whose operators, repeated, are all of them.
void keep_one_period(std::vector<Watch::Seen>& calls) {
  std::vector<size_t> borders(calls.size() + 1, 0); // of Knuth, Morris and Pratt
  for (size_t i = 1, length = 0; i < calls.size(); borders[++i] = length) {
    while (length != 0 && calls[i].op != calls[length].op) {
      length = borders[length];
    }
    length += calls[i].op == calls[length].op ? 1 : 0;
  }
  const size_t period = calls.size() - borders[calls.size()];
  if (calls.size() % period != 0) {
    return;
  }
  const size_t kept = std::max(period, period * (Watch::kShortest / period));
  for (size_t i = kept; i < calls.size(); ++i) {
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

// Has the watch know calls that were followed, so that it sees what comes between them.
void Follower::watch_followed(const Trace* trace, size_t start, size_t count) {
  if (count != 0 && watch_ != nullptr && !watch_->rests()) {
    learn(watch_->see(Followed{trace->number, start, count}.code(), 0, {}, /*known=*/true));
  }
}

// Looks at a run of the last `run` calls that the watch saw, and follows it if a sixteenth of it is new. Then what it
// was before is forgotten.
bool Follower::learn(size_t run) {
  if (run == 0) {
    return false;
  }
  std::vector<Watch::Seen> calls;
  std::vector<Trace*> parts;
  for (Watch::Seen& seen : watch_->last(run)) {
    const std::optional<Followed> followed = Followed::of(seen.op);
    if (!followed.has_value()) {
      calls.push_back(std::move(seen));
      continue;
    }
    const auto trace =
        std::find_if(traces_.begin(), traces_.end(), [&](const auto& each) { return each->number == followed->trace; });
    if (trace == traces_.end()) {
      return false;
    }
    for (size_t i = 0; i < followed->count; ++i) {
      const Position& position = (*trace)->positions[(*trace)->after(followed->start, i)];
      calls.push_back({position.op, position.steady});
    }
    if (std::find(parts.begin(), parts.end(), trace->get()) == parts.end()) {
      parts.push_back(trace->get());
    }
  }
  if (watch_->num_unknown(run) * 16 < calls.size()) {
    return false;
  }
  keep_one_period(calls);
  lose_place();
  for (Trace* part : parts) {
    drop_trace(part);
  }
  start_trace(std::move(calls));
  return true;
}

// The place that the last operators lead to: the next one in the run that was left, or one in another.
Place Follower::find_again() const {
  const auto [begin, end] = places_.equal_range(recent_.order());
  Place best;
  size_t nearest = 0;
  for (auto found = begin; found != end; ++found) {
    const Place& place = found->second;
    const size_t length = place.trace->positions.size();
    const bool is_ahead = place.trace == lost_.trace;
    if (!is_ahead && !recent_.leads_to(place)) {
      continue;
    }
    const size_t ahead = is_ahead ? (place.at + length - lost_.at) % length : length;
    if (best.trace == nullptr || ahead < nearest || (ahead == nearest && place.trace->used > best.trace->used)) {
      best = place;
      nearest = ahead;
    }
  }
  return best;
}

void Follower::lose_place() {
  close();
  lost_ = std::exchange(place_, {});
  held_ = 0;
  recent_ = {};
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
  std::erase_if(places_, [&](const auto& place) { return place.second.trace == trace; });
  for (const Position& position : trace->positions) {
    graphs_ -= static_cast<int64_t>(position.chunks.size());
  }
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

// Moves what still lives in plans that were dropped, whose memory is one piece.
void Follower::leave_dropped_plans() {
  for (Block* block : std::exchange(stranded_, {})) {
    if (block->is_live()) {
      move(block);
    }
    block->drop();
  }
}

// ---- recording ----

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
  if (is_known) {
    const bool looks = looks_at_lives();
    if (!is_lent) {
      record_.script.emplace(*blocks_, position, where_, looks);
      position.planned = !looks;
    }
  }
  record = &record_;
  place_.at = place_.trace->after(place_.at);
}

// Whether the call is one of the two of its place that tell how long tensors live.
bool Follower::looks_at_lives() {
  Trace& trace = *place_.trace;
  Position& position = place_.position();
  if (trace.is_planned) {
    return false;
  }
  if (position.seen == 2) {
    if ((trace.seen == 2 * trace.positions.size() && held_ >= trace.seen) || trace.looks == kMostLooks) {
      plan_memory(trace);
      return false;
    }
    trace.seen = 0;
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
  if (trace.seen == 2 * trace.positions.size() && held_ >= trace.seen) {
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
  const Busy busy(busy_, chunk.get());
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
    if (const c10::StorageImpl* owner = owner_of(tensor.storage().unsafeGetStorageImpl()); owner != nullptr) {
      if (Block* block = block_of(owner->data_ptr()); block != nullptr) {
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

// ---- what comes from outside ----

void Follower::want(bool graphs) {
  if (!graphs) {
    cut("graphs were turned off");
    if (place_.trace != nullptr) {
      lose_place();
    }
    wait_for_moves();
    has_unseen_ = true;
  }
  __atomic_store_n(&graphs_wanted, graphs, __ATOMIC_RELAXED);
}

void Follower::cut(const char* why) {
  if (inside_) {
    return; // a recorded call, which is not followed if it does more than queue work
  }
  if (chunk_ != nullptr) {
    diverge(why, /*at_a_call=*/false);
  }
  if (open_ != nullptr) {
    ++cuts_[std::string("captured up to: ") + why];
    close();
  }
}

void Follower::forget_lent(const c10::DataPtr& memory) {
  const void* data = memory.get();
  if (moves_.contains(data)) {
    wait_for_moves();
  }
  const c10::DataPtr* owned = owned_memory(memory);
  Block* block = owned != nullptr ? block_of(*owned) : nullptr;
  if (block == nullptr && !addresses_.contains(data)) {
    return;
  }
  std::vector<Block*> touched;
  if (block != nullptr) {
    block->lend();
    std::copy_if(blocks_->held().begin(), blocks_->held().end(), std::back_inserter(touched), [&](const Block* other) {
      return other->overlaps(*block);
    });
  }
  const auto uses = [&](const Call& call) {
    return call.uses(block, data) || std::any_of(touched.begin(), touched.end(), [&](const Block* other) {
             return call.uses(other, other->data());
           });
  };
  for (const auto& trace : traces_) {
    for (Position& position : trace->positions) {
      if (block != nullptr && block->maker == &position) {
        ++position.lent;
      }
      graphs_ -= static_cast<int64_t>(std::erase_if(position.chunks, [&](const auto& chunk) {
        return std::any_of(chunk->calls.begin(), chunk->calls.end(), uses);
      }));
    }
  }
  if (!touched.empty()) {
    std::unordered_set<const Block*> others(blocks_->held().begin(), blocks_->held().end());
    for (const Block* one : touched) {
      others.erase(one);
    }
    keep(others);
  }
}

bool Follower::keep(c10::StorageImpl* twin) {
  if ((chunk_ == nullptr && open_ == nullptr) || block_of(twin->data_ptr()) != nullptr) {
    return false;
  }
  kept_.push_back(twin);
  return true;
}

bool Follower::keep_memory(void* data) {
  if (chunk_ == nullptr) {
    return false;
  }
  kept_memory_.push_back(data);
  return true;
}

// Takes all other blocks from the plans, and gives them up.
void Follower::keep(const std::unordered_set<const Block*>& blocks) {
  for (const auto& trace : traces_) {
    for (Position& position : trace->positions) {
      const auto goes = [&](const Block* block) { return !blocks.contains(block); };
      std::replace_if(position.blocks.begin(), position.blocks.end(), goes, nullptr);
    }
  }
  blocks_->keep(blocks);
}

// The blocks of all plans and graphs.
std::unordered_set<const Block*> Follower::wanted() const {
  std::unordered_set<const Block*> blocks;
  for (const auto& trace : traces_) {
    for (const Position& position : trace->positions) {
      blocks.insert(position.blocks.begin(), position.blocks.end());
      for (const auto& chunk : position.chunks) {
        for (const Call& call : chunk->calls) {
          blocks.insert(call.blocks.begin(), call.blocks.end());
        }
      }
    }
  }
  return blocks;
}

// Gives back memory that neither a plan nor a graph has any more. Sizes that change leave it behind, and graphs that
// wait for sizes that do not come back: those end.
void Follower::give_back_unwanted() {
  for (const auto& trace : traces_) {
    const auto is_left_behind = [&](const auto& chunk) {
      const uint64_t turns = std::min<uint64_t>(4 * (uint64_t(chunk->launched) + 1), 64);
      return chunk.get() != late_ && chunk->used + turns * trace->positions.size() < now();
    };
    for (Position& position : trace->positions) {
      graphs_ -= static_cast<int64_t>(std::erase_if(position.chunks, is_left_behind));
    }
  }
  std::unordered_set<const Block*> blocks = wanted();
  std::copy_if(
      blocks_->held().begin(), blocks_->held().end(), std::inserter(blocks, blocks.end()), [](const Block* block) {
        return block->is_live();
      });
  blocks_->keep(blocks);
}

bool Follower::release() {
  if (blocks_ == nullptr) {
    return false;
  }
  ++released_;
  if (inside_ || busy_ != nullptr) { // a call that is recorded or launched finds no memory
    for (const auto& trace : traces_) {
      for (Position& position : trace->positions) {
        graphs_ -= static_cast<int64_t>(
            std::erase_if(position.chunks, [&](const auto& chunk) { return chunk.get() != busy_; }));
      }
    }
    const size_t before = blocks_->bytes();
    std::unordered_set<const Block*> used;
    for (const Block* block : blocks_->held()) {
      if (block->is_live() || is_used(block)) {
        used.insert(block);
      }
    }
    keep(used);
    return blocks_->bytes() != before;
  }
  cut("memory given back");
  place_ = lost_ = {};
  if (watch_ != nullptr) {
    watch_->forget();
  }
  places_.clear();
  addresses_.clear();
  traces_.clear();
  graphs_ = 0;
  blocks_.reset();
  return true;
}

// Whether a block is in a chunk that is in use.
bool Follower::is_used(const Block* block) const {
  for (const Chunk* chunk : std::initializer_list<const Chunk*>{open_.get(), busy_, chunk_}) {
    if (chunk != nullptr && std::any_of(chunk->calls.begin(), chunk->calls.end(), [&](const Call& call) {
          return call.uses(block, block->data());
        })) {
      return true;
    }
  }
  return false;
}

void Follower::forked() {
  __atomic_store_n(&graphs_wanted, false, __ATOMIC_RELAXED);
  thread_ = std::this_thread::get_id();
  moves_.clear(); // the child has no device to wait for
  has_unseen_ = false;
}

Counts Follower::counts() const {
  Counts all = {
      {"calls", calls_},
      {"followed", followed_calls_},
      {"launches of graphs", launched_},
      {"calls launched by graphs", launched_calls_},
      {"calls launched early", diverged_calls_},
      {"graphs captured", captured_},
      {"graphs", graphs_},
      {"runs found", traces_found_},
      {"tensors moved", moved_},
      {"memory given back", released_},
      {"bytes held", blocks_ != nullptr ? static_cast<int64_t>(blocks_->bytes()) : 0},
  };
  for (const auto& [op, reasons] : refused_) {
    for (const auto& [why, times] : reasons) {
      all[std::string("native: ") + why] += times;
    }
  }
  for (const auto& [why, times] : cuts_) {
    all[why] += times;
  }
  return all;
}

Counts Follower::followed_calls() {
  Counts all;
  for (const Operator* op : Operators::instance().made()) {
    if (op->followed != 0) {
      all[c10::toString(op->op.operator_name())] += op->followed;
    }
  }
  return all;
}

std::unordered_map<std::string, Counts> Follower::native_calls() const {
  std::unordered_map<std::string, Counts> all;
  for (const auto& [op, reasons] : refused_) {
    for (const auto& [why, times] : reasons) {
      all[c10::toString(op->op.operator_name())][why] += times;
    }
  }
  return all;
}

void Follower::inject(int64_t fault) {
  cut("a fault was injected");
  late_ = nullptr;
  fault_ = fault;
}

} // namespace flagos::following
