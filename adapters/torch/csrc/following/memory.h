// SPDX-License-Identifier: Apache-2.0
// The memory of followed calls: blocks at fixed addresses, each with one tensor at a time.
#pragma once

#include <c10/core/Storage.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <unordered_set>
#include <vector>

#include "runtime/pending.h"

namespace flagos::following {

// Memory that stays where it is as long as graphs use it.
struct Block {
  Block(c10::DataPtr memory, size_t size) : memory(std::move(memory)), size(size) {}

  c10::DataPtr memory; // from the pool of the device
  size_t size;
  std::atomic<uint32_t> holders{1}; // `Blocks`, and the tensor
  std::atomic<bool> live{false};    // whether a tensor, or a call in progress, has the bytes
  bool lent = false;                // others know the address: it never moves, and no graph may use the block
  const void* maker = nullptr;      // the place in a run whose call took the bytes last; only to be compared
  // The flagos storage over the block. Not asked while the block is not live.
  c10::weak_intrusive_ptr<c10::StorageImpl> owner{c10::intrusive_ptr<c10::StorageImpl>()};

  void* data() const {
    return memory.get();
  }
  void belongs_to(const c10::Storage& storage) {
    owner = c10::weak_intrusive_ptr<c10::StorageImpl>(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl()));
  }
  // Takes the block, which is not live, as memory of the device `label`. `by_address`: its address is its context, as
  // the host's users of `raw_allocate` need.
  c10::DataPtr take(c10::Device label, bool by_address);
};

// The block behind native memory; null for memory that is not planned.
Block* block_of(const c10::DataPtr& native);

// Gives back what was taken by address; false for other memory.
bool give_back_at(void* data);

// All blocks of one stream.
class Blocks {
 public:
  ~Blocks();

  // A block of `nbytes` that is not live: `planned` if that one does, else another, else a new one of memory that
  // `allocate` gives. `conflicts`: how often the planned one was live. Few blocks that take turns among more calls
  // would come to another call each time, so the second conflict brings a new one.
  template <class Allocate>
  Block* find(Block* planned, uint8_t& conflicts, size_t nbytes, const Allocate& allocate) {
    if (planned != nullptr && fits(*planned, nbytes)) {
      if (is_free(*planned)) {
        return planned;
      }
      conflicts = static_cast<uint8_t>(std::min<int>(conflicts + 1, kMostConflicts + 1));
    }
    if (conflicts < 2 || conflicts > kMostConflicts) {
      if (Block* found = best(nbytes)) {
        return found;
      }
    }
    return add(allocate(round(nbytes)), round(nbytes));
  }

  // Gives up a block: it ends with its tensor.
  void retire(Block* block);
  // Whether there is so much new memory that it is time for `keep`.
  bool have_grown() const {
    return bytes_ > most_;
  }
  // Gives up all other blocks that are free: sizes that changed have left them behind.
  void keep(const std::unordered_set<const Block*>& wanted);

  const std::vector<Block*>& held() const {
    return blocks_;
  }
  size_t bytes() const {
    return bytes_;
  }

 private:
  static constexpr uint8_t kMostConflicts = 4; // behind them stands a program that keeps what it makes

  static size_t round(size_t nbytes) {
    return (nbytes + 511) / 512 * 512;
  }
  static bool is_free(const Block& block) {
    return !block.live.load(std::memory_order_acquire) && !block.lent;
  }
  static bool fits(const Block& block, size_t nbytes) {
    return block.size >= nbytes && block.size <= round(nbytes) + nbytes / 8;
  }
  Block* best(size_t nbytes) const;
  Block* add(c10::DataPtr memory, size_t size);

  static constexpr size_t kLeast = size_t(1) << 20;

  std::vector<Block*> blocks_;
  size_t bytes_ = 0;
  size_t most_ = kLeast; // bytes until `keep` is worth its time
};

} // namespace flagos::following
