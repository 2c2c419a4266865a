// SPDX-License-Identifier: Apache-2.0
// Which calls are followed, captured or served natively. One for the process: the calls of one stream of one device at
// a time, from whatever thread.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Event.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "following/graph.h"
#include "following/key.h"
#include "following/memory.h"
#include "following/operator.h"
#include "following/places.h"
#include "following/script.h"
#include "following/watch.h"
#include "runtime/pending.h"

namespace flagos::following {

struct Record {
  Operator* op = nullptr;
  std::vector<uint64_t> words;
  std::optional<Script> script;
  Position* position = nullptr;
  bool familiar = false;
  bool joins = false; // the open chunk
};

using Counts = std::unordered_map<std::string, int64_t>;

class Follower {
 public:
  static Follower& instance();

  std::recursive_mutex mutex; // to be held for all that follows

  // ---- of a turn ----

  // Follows the call on top of the stack, whose arguments go to `arguments`, or returns false; then `record` is set if
  // the call is to be recorded.
  bool begin(Operator& op, torch::jit::Stack& stack, torch::jit::Stack& arguments, Record*& record);
  void end();
  void serving(bool now);
  bool is_deferred() const {
    return record_.joins && capturer_ != nullptr;
  }
  size_t num_arguments() const {
    return record_.op->num_arguments;
  }
  // Threads of the program begin or end to use the device.
  void count_users(int change) {
    users_ += change;
  }
  // The recorded call is over.
  void note(const torch::jit::Stack& arguments, const torch::jit::Stack& stack);
  // It could not be captured: the calls before it run, and it will run natively.
  void give_up();

  // ---- from outside ----

  void want(bool graphs);
  // Has what is pending launched.
  void cut(const char* why);
  // Others know this memory from now on: graphs that do end.
  void forget_lent(const c10::DataPtr& memory);
  // Keeps memory until what is pending is launched; false if nothing is.
  bool keep_twin(c10::StorageImpl* twin);
  bool keep_memory(void* data);
  // Gives the memory of all graphs back, and the graphs with it; false if there was none.
  bool release();
  // Waits until all tensors that moved are where they moved to.
  void wait_for_moves();
  // Whether this thread's calls go to another stream than the one that is followed.
  bool is_on_another_stream() const;
  // A call comes whose memory is not known.
  void note_unseen_call();
  void forked();
  Counts counts() const;
  // The calls that were followed, by operator.
  static Counts followed_calls();
  // The calls that ran natively: by operator, and by reason.
  std::unordered_map<std::string, Counts> native_calls() const;
  // For tests of the tests: 1 launches every second graph one call late, 2 gives a block twice; 0 does neither.
  void inject(int64_t fault);

 private:
  // following (follower.cc)
  bool continues(bool plain);
  bool starts_chunk(bool plain);
  void take(torch::jit::Stack& stack, torch::jit::Stack& arguments);
  bool make_room(const Call& call);
  void launch();
  void diverge(const char* why, bool at_a_call);
  void run(const std::vector<Call>& calls, size_t count);
  void drop(Chunk* chunk);
  void launched();

  // moving what is alive (moves.cc)
  bool vacate(Block* block);
  bool move(Block* block);
  void note_move(const void* address);
  void wait_for_unseen();
  void leave_dropped_plans();

  // finding out where the calls are (locating.cc)
  bool switches_stream(const Operator& op);
  bool locate(const Operator& op);
  Place find_again() const;
  bool is_familiar();
  bool watches(const Operator& op);
  size_t watch(const Operator& op, Watch::Known known);
  void watch_followed(const Trace* trace, size_t start, size_t count, bool one_by_one);
  bool learn(size_t run);
  uint64_t now() const {
    return static_cast<uint64_t>(calls_);
  }
  void start_trace(std::vector<Watch::Seen> calls);
  void drop_oldest_trace();
  void drop_trace(Trace* trace);
  void lose_place();

  // recording (recording.cc)
  void record(Operator& op, c10::ArrayRef<c10::IValue> arguments, bool plain, Record*& record);
  bool has_seen_turns() const;
  bool waits_for_plan();
  bool looks_at_lives();
  void plan_memory(Trace& trace);
  void open();
  void close();
  std::unique_ptr<Launchable> capture(const Chunk& chunk);
  // Has no graph know the memory of the call's arguments.
  void lend_arguments(c10::ArrayRef<c10::IValue> arguments);

  // the memory of all that is followed (requests.cc)
  void keep(const std::unordered_set<const Block*>& blocks);
  std::unordered_set<const Block*> wanted() const;
  void give_back_unwanted();
  bool is_used(const Block* block) const;

  static void set_pending(bool pending) {
    __atomic_store_n(&calls_pending, pending, __ATOMIC_RELEASE);
  }
  void refuse(const Operator& op, const char* why) {
    ++refused_[&op][why];
  }

  static constexpr const char* kNew = "calls that do not repeat";

  // What is followed.
  Where where_;
  int64_t elsewhere_ = 0; // calls on another stream, one after the other
  std::thread::id thread_;
  int users_ = 0; // threads of the program that use the device
  Key key_;
  bool inside_ = false; // a recorded call
  std::unique_ptr<Watch> watch_;
  size_t run_ = 0; // the length of one that the watch found while a chunk was followed
  std::unique_ptr<Blocks> blocks_;
  std::vector<std::unique_ptr<Trace>> traces_;
  std::unordered_multimap<uint64_t, Place> places_; // by the last operators up to there
  std::unordered_set<const void*> addresses_;       // that calls in graphs have, or had
  std::vector<Block*> stranded_;                    // of plans that were dropped, with a reference on each
  std::unordered_set<const void*> moves_;           // where tensors are whose copies nobody has waited for yet
  c10::Event last_move_{kFlagos};                   // behind all these copies
  bool has_unseen_ = false;                         // calls on other streams, which may still use what is about to move
  std::vector<c10::StorageImpl*> kept_;             // until what is pending is launched
  std::vector<void*> kept_memory_;                  // likewise

  Chunk* chunk_ = nullptr;      // being followed
  const Chunk* busy_ = nullptr; // being launched, or looked at: it outlives a release of memory
  size_t followed_ = 0;         // calls of it
  Chunk* late_ = nullptr;       // by an injected fault
  int64_t late_since_ = 0;

  Place place_;     // of the next call
  size_t held_ = 0; // calls since it was found
  Place lost_;      // the last place that was known
  Recent recent_;   // the last calls

  Capturer* capturer_ = nullptr;   // of calls as they come
  Capturer* afterwards_ = nullptr; // of chunks that are whole
  std::unique_ptr<Chunk> open_;    // being captured
  bool bad_ = false;               // whether a call was captured that cannot be followed
  Record record_;
  uint64_t waited_ = 0; // how often the thread had waited before the recorded call
  int64_t fault_ = 0;

  int64_t calls_ = 0;
  int64_t followed_calls_ = 0;
  int64_t launched_ = 0;
  int64_t launched_calls_ = 0;
  int64_t diverged_calls_ = 0;
  int64_t captured_ = 0;
  int64_t graphs_ = 0;
  int64_t moved_ = 0;
  int64_t released_ = 0;
  int64_t traces_found_ = 0;
  std::unordered_map<const Operator*, std::unordered_map<const char*, int64_t>> refused_;
  Counts cuts_;
};

} // namespace flagos::following
