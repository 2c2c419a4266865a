// SPDX-License-Identifier: Apache-2.0
#include "following/script.h"

#include <utility>

#include "runtime/allocator.h"

namespace flagos::following {

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

} // namespace flagos::following
