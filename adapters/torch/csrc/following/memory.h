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

// Memory that stays where it is as long as graphs use it. While nobody has the bytes of a block, parts of it serve smaller
// tensors; a part is a block itself.
class Block {
 public:
  Block(c10::DataPtr memory, size_t size);
  // The next `size` bytes of `whole`, of those that `rest` counts.
  Block(Block& whole, size_t size);

  Block* const whole; // that it is a part of, or null
  const size_t size;
  const void* maker = nullptr; // the place in a run whose call took the bytes last; only to be compared
  // The flagos storage over the block. Not asked while the block is not live.
  c10::weak_intrusive_ptr<c10::StorageImpl> owner{c10::intrusive_ptr<c10::StorageImpl>()};

  void* data() const {
    return data_;
  }
  // The pool's memory that it is in.
  const c10::DataPtr& memory() const {
    return whole != nullptr ? whole->memory() : memory_;
  }
  // Whether a tensor, or a call in progress, has all of its bytes.
  bool is_live() const {
    return live_.load(std::memory_order_acquire);
  }
  // Whether nobody has any of them.
  bool is_vacant() const {
    return !is_live() && live_parts_.load(std::memory_order_acquire) == 0 && !any_around(&Block::is_live);
  }
  // Whether a graph may use them: nobody has or knows any of them.
  bool is_free() const {
    return is_vacant() && !lent_ && !lent_part_ && !any_around(&Block::is_lent);
  }
  bool is_lent() const {
    return lent_;
  }
  bool overlaps(const Block& other) const {
    return this == &other || is_in(other) || other.is_in(*this);
  }
  // The bytes that a new part may have.
  size_t rest() const;
  // Others know the address from now on: the block never moves.
  void lend();
  void belongs_to(const c10::Storage& storage) {
    owner = c10::weak_intrusive_ptr<c10::StorageImpl>(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl()));
  }
  // Takes the block, which is vacant, as memory of the device `label`. `by_address`: its address is its context, as the
  // host's users of `raw_allocate` need.
  c10::DataPtr take(c10::Device label, bool by_address);
  void give_back();
  // Drops a reference; the block ends with its last one.
  void drop();

 private:
  ~Block() = default;
  bool any_around(bool (Block::*is)() const) const {
    const Block* around = whole;
    while (around != nullptr && !(around->*is)()) {
      around = around->whole;
    }
    return around != nullptr;
  }
  bool is_in(const Block& other) const {
    const Block* around = whole;
    while (around != nullptr && around != &other) {
      around = around->whole;
    }
    return around != nullptr;
  }

  // The bytes that are in parts. What others knew does not come again.
  size_t divided() const {
    return parts_.load(std::memory_order_acquire) == 0 && !lent_part_ ? kFirst : divided_;
  }

  static constexpr size_t kFirst = 512; // where the first part begins: an address is that of one block

  c10::DataPtr memory_; // of a block that is no part
  void* data_;
  std::atomic<uint32_t> references_{1}; // of `Blocks`, of the tensor, and of parts
  std::atomic<bool> live_{false};
  std::atomic<uint32_t> live_parts_{0}; // and parts of parts
  std::atomic<uint32_t> parts_{0};
  size_t divided_ = kFirst; // bytes that are in parts, or were
  bool lent_ = false;
  bool lent_part_ = false;
};

// The block behind native memory; null for memory that is not planned.
Block* block_of(const c10::DataPtr& native);

// Gives back what was taken by address; false for other memory.
bool give_back_at(void* data);

// All blocks of one stream.
class Blocks {
 public:
  ~Blocks();

  // A free block of `nbytes`: `planned` if that one does, else another, else a part of a larger one, else a new one of
  // memory that `allocate` gives. `conflicts`: how often the planned one was not free. Few blocks that take turns among
  // more calls would come to another call each time, so the second conflict brings a new one.
  template <class Allocate>
  Block* find(Block* planned, uint8_t& conflicts, size_t nbytes, const Allocate& allocate) {
    if (planned != nullptr && fits(*planned, nbytes)) {
      if (planned->is_free()) {
        return planned;
      }
      conflicts = static_cast<uint8_t>(std::min<int>(conflicts + 1, kMostConflicts + 1));
    }
    if (conflicts < 2 || conflicts > kMostConflicts) {
      if (Block* found = best(nbytes)) {
        return found;
      }
      if (Block* whole = divisible(round(nbytes))) {
        return add(new Block(*whole, round(nbytes)));
      }
    }
    return add(new Block(allocate(round(nbytes)), round(nbytes)));
  }

  // Whether there is so much new memory that it is time for `keep`.
  bool have_grown() const {
    return bytes_ > most_;
  }
  // Gives up all other blocks but those around them: each ends with its tensor.
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
  static bool fits(const Block& block, size_t nbytes) {
    return block.size >= nbytes && block.size <= round(nbytes) + nbytes / 8;
  }
  Block* best(size_t nbytes) const;
  Block* divisible(size_t nbytes) const;
  Block* add(Block* block);

  static constexpr size_t kLeast = size_t(1) << 20;
  static constexpr size_t kMostParts = 64; // a smaller part keeps too much memory from its other uses

  std::vector<Block*> blocks_;
  size_t bytes_ = 0;
  size_t most_ = kLeast; // bytes until `keep` is worth its time
};

} // namespace flagos::following
