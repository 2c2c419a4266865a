// SPDX-License-Identifier: Apache-2.0
#include "following/memory.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace flagos::following {

namespace {

// The blocks by their addresses.
class Addresses {
 public:
  static Addresses& instance() {
    static auto* addresses = new Addresses(); // never destroyed: tensors may end after static destruction
    return *addresses;
  }
  void add(Block* block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[block->data()] = block;
  }
  void remove(const Block* block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.erase(block->data());
  }
  Block* find(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(data);
    return found == blocks_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, Block*> blocks_;
};

// The deleter of memory in a block.
void give_back(void* context) {
  static_cast<Block*>(context)->give_back();
}

// That of memory that was taken by address.
void give_back_context(void* data) {
  give_back_at(data);
}

} // namespace

bool give_back_at(void* data) {
  Block* block = Addresses::instance().find(data);
  if (block == nullptr) {
    return false;
  }
  block->give_back();
  return true;
}

Block::Block(c10::DataPtr memory, size_t size)
    : whole(nullptr), size(size), memory_(std::move(memory)), data_(memory_.get()) {}

Block::Block(Block& whole, size_t size) : whole(&whole), size(size) {
  whole.divided_ = whole.divided();
  data_ = static_cast<char*>(whole.data_) + whole.divided_;
  whole.divided_ += size;
  whole.parts_.fetch_add(1, std::memory_order_acq_rel);
  whole.references_.fetch_add(1, std::memory_order_relaxed);
}

size_t Block::rest() const {
  if (is_live() || lent_ || any_around(&Block::is_live) || any_around(&Block::is_lent)) {
    return 0;
  }
  return size - std::min(size, divided());
}

void Block::lend() {
  lent_ = true;
  for (Block* around = whole; around != nullptr; around = around->whole) {
    around->lent_part_ = true;
  }
}

c10::DataPtr Block::take(c10::Device label, bool by_address) {
  references_.fetch_add(1, std::memory_order_relaxed);
  live_.store(true, std::memory_order_release);
  for (Block* around = whole; around != nullptr; around = around->whole) {
    around->live_parts_.fetch_add(1, std::memory_order_release);
  }
  return by_address ? c10::DataPtr(data(), data(), &give_back_context, label)
                    : c10::DataPtr(data(), this, &flagos::following::give_back, label);
}

void Block::give_back() {
  live_.store(false, std::memory_order_release);
  for (Block* around = whole; around != nullptr; around = around->whole) {
    around->live_parts_.fetch_sub(1, std::memory_order_release);
  }
  drop();
}

void Block::drop() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) {
    return;
  }
  Addresses::instance().remove(this);
  Block* const around = whole;
  delete this;
  if (around != nullptr) {
    around->parts_.fetch_sub(1, std::memory_order_release);
    around->drop();
  }
}

Block* block_of(const c10::DataPtr& native) {
  if (native.get_deleter() == &give_back) {
    return static_cast<Block*>(native.get_context());
  }
  return native.get_deleter() == &give_back_context ? Addresses::instance().find(native.get_context()) : nullptr;
}

Blocks::~Blocks() {
  keep({});
}

Block* Blocks::add(Block* block) {
  blocks_.push_back(block);
  Addresses::instance().add(block);
  bytes_ += block->whole == nullptr ? block->size : 0;
  return block;
}

// The least of those that are free and large enough, but not too large.
Block* Blocks::best(size_t nbytes) const {
  Block* best = nullptr;
  for (Block* block : blocks_) {
    if (fits(*block, nbytes) && (best == nullptr || block->size < best->size) && block->is_free()) {
      best = block;
    }
  }
  return best;
}

// The block of which least is left beside a part of so many bytes.
Block* Blocks::divisible(size_t nbytes) const {
  Block* best = nullptr;
  size_t least = 0;
  for (Block* block : blocks_) {
    if (block->size < nbytes || block->size > nbytes * kMostParts) {
      continue;
    }
    const size_t rest = block->rest();
    if (rest >= nbytes && (best == nullptr || rest < least)) {
      best = block;
      least = rest;
    }
  }
  return best;
}

void Blocks::keep(const std::unordered_set<const Block*>& wanted) {
  std::unordered_set<const Block*> needed;
  for (const Block* block : wanted) {
    while (block != nullptr && needed.insert(block).second) {
      block = block->whole;
    }
  }
  std::erase_if(blocks_, [&](Block* block) {
    if (needed.contains(block)) {
      return false;
    }
    bytes_ -= block->whole == nullptr ? block->size : 0;
    block->drop();
    return true;
  });
  most_ = std::max(bytes_ + bytes_ / 8, kLeast);
}

} // namespace flagos::following
