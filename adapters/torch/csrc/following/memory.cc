// SPDX-License-Identifier: Apache-2.0
#include "following/memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace flagos::following {

namespace {

// The blocks that were taken by their addresses.
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
  Block* find(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(data);
    return found == blocks_.end() ? nullptr : found->second;
  }
  Block* remove(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.extract(data);
    return found.empty() ? nullptr : found.mapped();
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

std::atomic<uint64_t> allocations{0};

} // namespace

uint64_t Life::next() {
  return 1 + allocations.fetch_add(1, std::memory_order_relaxed);
}

uint64_t Life::now() {
  return allocations.load(std::memory_order_relaxed);
}

// ---- regions ----

Region::Region(c10::DataPtr memory, size_t size, size_t grain)
    : memory(std::move(memory)), size(size), grain(grain), taken_((size / grain + 63) / 64 + 1) {}

template <class Visit>
bool Region::each_word(size_t first, size_t last, const Visit& visit) const {
  while (first < last) {
    const size_t bit = first % 64;
    const size_t count = std::min(64 - bit, last - first);
    const uint64_t mask = (count == 64 ? ~uint64_t(0) : (uint64_t(1) << count) - 1) << bit;
    if (!visit(taken_[first / 64], mask)) {
      return false;
    }
    first += count;
  }
  return true;
}

bool Region::is_free(size_t first, size_t last) const {
  return each_word(
      first, last, [](const auto& word, uint64_t mask) { return (word.load(std::memory_order_acquire) & mask) == 0; });
}

void Region::take(size_t first, size_t last) {
  each_word(first, last, [](auto& word, uint64_t mask) {
    word.fetch_or(mask, std::memory_order_acq_rel);
    return true;
  });
}

void Region::give_back(size_t first, size_t last) {
  each_word(first, last, [](auto& word, uint64_t mask) {
    word.fetch_and(~mask, std::memory_order_acq_rel);
    return true;
  });
}

// ---- blocks ----

Block::Block(std::shared_ptr<Region> region, size_t offset, size_t size)
    : region(std::move(region)),
      size(size),
      offset_(offset),
      first_(offset / this->region->grain),
      last_((offset + size + this->region->grain - 1) / this->region->grain) {}

c10::DataPtr Block::take(c10::Device label, bool by_address) {
  hold();
  region->take(first_, last_);
  live_.store(true, std::memory_order_release);
  if (by_address) {
    Addresses::instance().add(this);
    return {data(), data(), &give_back_context, label};
  }
  return {data(), this, &flagos::following::give_back, label};
}

void Block::give_back() {
  if (life != nullptr) {
    life->died.store(Life::now(), std::memory_order_release);
  }
  live_.store(false, std::memory_order_release);
  if (!is_lent()) {
    region->give_back(first_, last_);
  }
  drop();
}

void Block::drop() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete this;
  }
}

bool give_back_at(void* data) {
  Block* block = Addresses::instance().remove(data);
  if (block == nullptr) {
    return false;
  }
  block->give_back();
  return true;
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

void Blocks::add(Block* block) {
  blocks_.push_back(block);
  if (block->region->held++ == 0) {
    bytes_ += block->region->size;
  }
}

// The least of those that are free and large enough, but not too large.
Block* Blocks::best(size_t nbytes) const {
  Block* best = nullptr;
  for (Block* block : blocks_) {
    if (fits(*block, nbytes) && !block->is_in_plan() && (best == nullptr || block->size < best->size) &&
        block->is_free()) {
      best = block;
    }
  }
  return best;
}

void Blocks::keep(const std::unordered_set<const Block*>& wanted) {
  std::erase_if(blocks_, [&](Block* block) {
    if (wanted.contains(block)) {
      return false;
    }
    if (--block->region->held == 0) {
      bytes_ -= block->region->size;
    }
    block->drop();
    return true;
  });
  most_ = std::max(bytes_ + bytes_ / 8, kLeast);
}

// ---- plans ----

namespace {

// Where tensors lie in a region.
struct Layout {
  static constexpr size_t kNowhere = static_cast<size_t>(-1);
  static constexpr size_t kMost = 4096; // tensors; the largest of them
  static constexpr size_t kGrains = 1U << 14U;

  size_t size = 0;
  size_t grain = 512;
  std::vector<size_t> offsets; // of each tensor, or `kNowhere`
};

// The allocations of a turn for which a tensor lives: from the one that made it to the last one before its end.
struct Span {
  size_t number; // of the life
  size_t nbytes;
  uint64_t begin; // within the turn
  uint64_t length;

  // Turns follow each other, so what begins late in one lives on at the beginning of the next.
  bool meets(const Span& other, uint64_t turn) const {
    const auto has = [&](const Span& span, uint64_t time) { return (time + turn - span.begin) % turn < span.length; };
    return has(*this, other.begin) || has(other, begin);
  }
};

// Of the tensors that end within a turn.
std::vector<Span> spans_of(const std::vector<std::shared_ptr<Life>>& lives, uint64_t turn) {
  std::vector<Span> spans;
  for (size_t i = 0; i < lives.size(); ++i) {
    const uint64_t died = lives[i] != nullptr ? lives[i]->died.load(std::memory_order_acquire) : 0;
    if (died != 0 && died - lives[i]->born + 1 < turn) {
      spans.push_back({i, lives[i]->nbytes, lives[i]->born % turn, died - lives[i]->born + 1});
    }
  }
  return spans;
}

// The bytes that live at each allocation of a turn.
std::vector<int64_t> bytes_of(const std::vector<Span>& spans, uint64_t turn) {
  std::vector<int64_t> bytes(turn + 1, 0); // first by how much they change
  for (const Span& span : spans) {
    const uint64_t end = span.begin + span.length;
    bytes[span.begin] += static_cast<int64_t>(span.nbytes);
    bytes[std::min(end, turn)] -= static_cast<int64_t>(span.nbytes);
    if (end > turn) {
      bytes[0] += static_cast<int64_t>(span.nbytes);
      bytes[end - turn] -= static_cast<int64_t>(span.nbytes);
    }
  }
  std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  bytes.pop_back();
  return bytes;
}

// The larger tensors come first; each lies in the smallest gap that it fits between those that live at the same time.
Layout lay_out(const std::vector<std::shared_ptr<Life>>& lives, uint64_t turn) {
  std::vector<Span> spans = spans_of(lives, turn);
  Layout layout;
  layout.offsets.assign(lives.size(), Layout::kNowhere);
  if (spans.empty()) {
    return layout;
  }
  const std::vector<int64_t> bytes = bytes_of(spans, turn);
  const auto most = static_cast<size_t>(*std::max_element(bytes.begin(), bytes.end()));
  while (most / layout.grain > Layout::kGrains) {
    layout.grain *= 2;
  }
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.nbytes > b.nbytes; });
  struct Placed {
    const Span* span;
    size_t begin;
    size_t end;
  };
  std::vector<Placed> placed; // by their places
  for (const Span& span : spans) {
    if (span.nbytes < layout.grain || placed.size() == Layout::kMost) {
      break;
    }
    const size_t size = (span.nbytes + layout.grain - 1) / layout.grain * layout.grain;
    size_t at = 0, best = Layout::kNowhere, least = Layout::kNowhere;
    for (const Placed& other : placed) {
      if (!other.span->meets(span, turn)) {
        continue;
      }
      if (other.begin >= at + size && other.begin - at < least) {
        best = at;
        least = other.begin - at;
      }
      at = std::max(at, other.end);
    }
    const size_t begin = best != Layout::kNowhere ? best : at;
    const Placed place{&span, begin, begin + size};
    placed.insert(
        std::upper_bound(
            placed.begin(), placed.end(), place, [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        place);
    layout.offsets[span.number] = begin;
    layout.size = std::max(layout.size, place.end);
  }
  return layout;
}

} // namespace

size_t Blocks::quietest(const std::vector<std::shared_ptr<Life>>& lives, uint64_t turn) {
  const std::vector<Span> spans = spans_of(lives, turn);
  const std::vector<int64_t> bytes = bytes_of(spans, turn);
  const auto least = std::min_element(spans.begin(), spans.end(), [&](const Span& one, const Span& other) {
    const auto before = [&](const Span& span) { return bytes[span.begin] - static_cast<int64_t>(span.nbytes); };
    return before(one) < before(other);
  });
  return least != spans.end() ? least->number : 0;
}

std::vector<Block*> Blocks::plan(
    const std::vector<std::shared_ptr<Life>>& lives,
    uint64_t turn,
    const std::function<c10::DataPtr(size_t)>& allocate) {
  const Layout layout = lay_out(lives, turn);
  std::vector<Block*> planned(lives.size(), nullptr);
  if (layout.size == 0) {
    return planned;
  }
  const auto region = std::make_shared<Region>(allocate(layout.size), layout.size, layout.grain);
  std::map<std::pair<size_t, size_t>, Block*> all; // by offset and size
  for (size_t i = 0; i < lives.size(); ++i) {
    if (layout.offsets[i] != Layout::kNowhere) {
      Block*& block = all[{layout.offsets[i], round(lives[i]->nbytes)}];
      if (block == nullptr) {
        block = new Block(region, layout.offsets[i], round(lives[i]->nbytes));
        add(block);
      }
      planned[i] = block;
    }
  }
  return planned;
}

} // namespace flagos::following
