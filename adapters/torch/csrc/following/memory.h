// SPDX-License-Identifier: Apache-2.0
// The memory of followed calls: blocks at fixed addresses, each with one tensor at a time.
#pragma once

#include <c10/core/Storage.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "runtime/pending.h"

namespace flagos::following {

// When a tensor was made and ended, as numbers of allocations.
struct Life {
  size_t nbytes = 0;
  uint64_t born = 0;
  std::atomic<uint64_t> died{0}; // 0 while it lives

  // The number of the next allocation.
  static uint64_t next();
  // That of the last one.
  static uint64_t now();
};

// Memory of the device's pool, in grains. Blocks in it may overlap: who takes one takes its grains.
class Region {
 public:
  // `grain`: bytes, a multiple of 512.
  Region(c10::DataPtr memory, size_t size, size_t grain);

  const c10::DataPtr memory;
  const size_t size;
  const size_t grain;
  size_t held = 0; // blocks in it that `Blocks` has

  bool is_free(size_t first, size_t last) const;
  void take(size_t first, size_t last);
  void give_back(size_t first, size_t last);

 private:
  // Visits the words that have bits from `first` up to `last`, each with a mask of these, until one does not hold.
  template <class Visit>
  bool each_word(size_t first, size_t last, const Visit& visit) const;

  mutable std::vector<std::atomic<uint64_t>> taken_; // a bit for each grain
};

// Memory that stays where it is as long as graphs use it.
class Block {
 public:
  Block(std::shared_ptr<Region> region, size_t offset, size_t size);

  const std::shared_ptr<Region> region;
  const size_t size;
  const void* maker = nullptr; // the place in a run whose call took the bytes last; only to be compared
  std::shared_ptr<Life> life;  // of the tensor, where it is to be known
  // The flagos storage over the block. Not asked while the block is not live.
  c10::weak_intrusive_ptr<c10::StorageImpl> owner{c10::intrusive_ptr<c10::StorageImpl>()};

  void* data() const {
    return static_cast<char*>(region->memory.get()) + offset_;
  }
  // Whether a tensor, or a call in progress, has the bytes.
  bool is_live() const {
    return live_.load(std::memory_order_acquire);
  }
  // Whether nobody has any of them, nor knows them.
  bool is_free() const {
    return region->is_free(first_, last_);
  }
  // Whether others know the address: it never moves, and no graph may use the block.
  bool is_lent() const {
    return lent_.load(std::memory_order_acquire);
  }
  void lend() {
    lent_.store(true, std::memory_order_release);
  }
  // Whether its bytes are in the plan of a whole run, and not for any call whose tensor is as large.
  bool is_in_plan() const {
    return size != region->size;
  }
  bool overlaps(const Block& other) const {
    return region == other.region && first_ < other.last_ && other.first_ < last_;
  }
  void belongs_to(const c10::Storage& storage) {
    owner = c10::weak_intrusive_ptr<c10::StorageImpl>(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl()));
  }
  // Takes the block, which is free, as memory of the device `label`. `by_address`: its address is its context, as the
  // host's users of `raw_allocate` need.
  c10::DataPtr take(c10::Device label, bool by_address);
  void give_back();
  // Takes a reference, and drops one; the block ends with its last one.
  void hold() {
    references_.fetch_add(1, std::memory_order_relaxed);
  }
  void drop();

 private:
  ~Block() = default;

  const size_t offset_;
  const size_t first_; // its grains, up to `last_`
  const size_t last_;
  std::atomic<uint32_t> references_{1}; // of who made it, and of the tensor
  std::atomic<bool> live_{false};
  std::atomic<bool> lent_{false};
};

// The block behind native memory; null for memory that is not planned.
Block* block_of(const c10::DataPtr& native);

// Gives back what was taken by address; false for other memory.
bool give_back_at(void* data);

// All blocks of one stream.
class Blocks {
 public:
  ~Blocks();

  // A free block of `nbytes`: `planned` if that one does, else another, else a new one of memory that `allocate` gives.
  // `conflicts`: how often the planned one was not free. Few blocks that take turns among more calls would come to
  // another call each time, so the second conflict brings a new one.
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
    }
    Block* block = alone(nbytes, allocate);
    add(block);
    return block;
  }

  // A block of memory of its own, which is the caller's to drop.
  template <class Allocate>
  static Block* alone(size_t nbytes, const Allocate& allocate) {
    const size_t size = round(nbytes);
    return new Block(std::make_shared<Region>(allocate(size), size, size), 0, size);
  }

  // Blocks for tensors that live so in each turn of `turn` allocations, all in one region that `allocate` gives. Null
  // for those that outlive a turn, and for small ones.
  std::vector<Block*> plan(
      const std::vector<std::shared_ptr<Life>>& lives,
      uint64_t turn,
      const std::function<c10::DataPtr(size_t)>& allocate);

  // The first tensor of those that find the least bytes of others alive.
  static size_t quietest(const std::vector<std::shared_ptr<Life>>& lives, uint64_t turn);

  // Whether there is so much new memory that it is time for `keep`.
  bool have_grown() const {
    return bytes_ > most_;
  }
  // Gives up all other blocks: each ends with its tensor.
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
  void add(Block* block);

  static constexpr size_t kLeast = size_t(1) << 20;

  std::vector<Block*> blocks_;
  size_t bytes_ = 0;
  size_t most_ = kLeast; // bytes until `keep` is worth its time
};

} // namespace flagos::following
