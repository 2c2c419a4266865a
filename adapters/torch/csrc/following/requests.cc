// SPDX-License-Identifier: Apache-2.0
// What the rest of the adapter asks of automatic graphs, and what they say of themselves.
#include <algorithm>
#include <iterator>
#include <utility>

#include "following/follower.h"
#include "following/storage.h"

namespace flagos::following {

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

bool Follower::keep_twin(c10::StorageImpl* twin) {
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
