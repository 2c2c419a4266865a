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

void drop(Block* block) {
  if (block->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    Addresses::instance().remove(block);
    delete block;
  }
}

// The deleter of memory in a block.
void give_back(void* context) {
  auto* block = static_cast<Block*>(context);
  block->live.store(false, std::memory_order_release);
  drop(block);
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
  give_back(block);
  return true;
}

c10::DataPtr Block::take(c10::Device label, bool by_address) {
  holders.fetch_add(1, std::memory_order_relaxed);
  live.store(true, std::memory_order_release);
  return by_address ? c10::DataPtr(data(), data(), &give_back_context, label)
                    : c10::DataPtr(data(), this, &give_back, label);
}

Block* block_of(const c10::DataPtr& native) {
  if (native.get_deleter() == &give_back) {
    return static_cast<Block*>(native.get_context());
  }
  return native.get_deleter() == &give_back_context ? Addresses::instance().find(native.get_context()) : nullptr;
}

Blocks::~Blocks() {
  for (Block* block : blocks_) {
    drop(block);
  }
}

Block* Blocks::add(c10::DataPtr memory, size_t size) {
  blocks_.push_back(new Block(std::move(memory), size));
  Addresses::instance().add(blocks_.back());
  bytes_ += size;
  return blocks_.back();
}

Block* Blocks::best(size_t nbytes) const {
  Block* best = nullptr;
  for (Block* block : blocks_) {
    if (fits(*block, nbytes) && is_free(*block) && (best == nullptr || block->size < best->size)) {
      best = block;
    }
  }
  return best;
}

void Blocks::retire(Block* block) {
  const auto found = std::find(blocks_.begin(), blocks_.end(), block);
  if (found != blocks_.end()) {
    blocks_.erase(found);
    bytes_ -= block->size;
    drop(block);
  }
}

void Blocks::keep(const std::unordered_set<const Block*>& wanted) {
  for (Block* block : std::vector<Block*>(blocks_)) {
    if (!block->live.load(std::memory_order_acquire) && !wanted.contains(block)) {
      retire(block);
    }
  }
  most_ = std::max(bytes_ + bytes_ / 8, kLeast);
}

} // namespace flagos::following
