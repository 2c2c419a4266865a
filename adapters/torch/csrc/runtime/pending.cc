// SPDX-License-Identifier: Apache-2.0
#include "runtime/pending.h"

#include <utility>

#include "runtime/births.h"
#include "runtime/native.h"

namespace flagos {

bool graphs_wanted = false;
bool calls_pending = false;
bool calls_queued = false;
thread_local bool is_thread_known = false;
void (*launch_pending_slowly)(const char* why) = nullptr;
void (*know_thread)() = nullptr;
void (*forget_lent)(const c10::DataPtr& memory) = nullptr;
bool (*release_graphs)() = nullptr;
void (*wait_for_moves)() = nullptr;
bool (*is_on_another_stream)() = nullptr;
void (*note_unseen_call)() = nullptr;
bool (*keep_until_launched)(c10::StorageImpl* twin) = nullptr;
bool (*give_back_planned)(void* data) = nullptr;
const c10::DataPtr* (*planned_block_of)(const c10::DataPtr& memory) = nullptr;
thread_local PlannedMemory* planned_memory = nullptr;

LentMemory& LentMemory::instance() {
  static auto* lent = new LentMemory; // never destroyed: tensors may be lent after static destruction
  return *lent;
}

bool LentMemory::add(const void* address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  any_.store(true, std::memory_order_release);
  const uint64_t life = Births::instance().life_of(address);
  const auto [lent, is_first] = lives_.try_emplace(address, life);
  const uint64_t before = std::exchange(lent->second, life);
  return is_first || life == 0 || before != life;
}

bool LentMemory::has(const void* address) const {
  if (C10_LIKELY(!any_.load(std::memory_order_acquire))) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto lent = lives_.find(address);
  if (lent == lives_.end()) {
    return false;
  }
  const uint64_t life = Births::instance().life_of(address);
  return life == 0 || life == lent->second;
}

namespace {

bool has_memory(const c10::StorageImpl* storage) {
  return storage != nullptr && storage->nbytes() != 0;
}

void launch_before_lending() {
  launch_pending("lent memory");
  if (C10_UNLIKELY(__atomic_load_n(&calls_queued, __ATOMIC_ACQUIRE))) {
    check(core->queues_flush());
  }
}

void note_lent(const c10::DataPtr& memory) {
  const bool is_new = LentMemory::instance().add(memory.get());
  if (C10_UNLIKELY(is_new && forget_lent != nullptr)) {
    forget_lent(memory);
  }
}

} // namespace

void lend(const c10::StorageImpl* storage) {
  if (has_memory(storage)) {
    lend(storage->data_ptr());
  }
}

void lend(const c10::DataPtr& memory) {
  if (memory) {
    launch_before_lending();
    note_lent(memory);
  }
}

void LastLent::lend(const c10::StorageImpl* storage) {
  if (!has_memory(storage)) {
    return;
  }
  launch_before_lending();
  const void* address = storage->data();
  const uint64_t life = Births::instance().life_of(address);
  // Of memory without a known life graphs may have learnt since, if there were any.
  const bool is_noted = address == address_ && life == life_ && (life != 0 || forget_lent == nullptr);
  if (C10_UNLIKELY(!is_noted)) {
    note_lent(storage->data_ptr());
    address_ = address;
    life_ = life;
  }
}

void prepare_capture() {
  launch_pending("a graph of the program");
  if (wait_for_moves != nullptr) {
    wait_for_moves();
  }
}

void release_when_launched(c10::StorageImpl* twin) {
  if (keep_until_launched == nullptr || !keep_until_launched(twin)) {
    c10::raw::intrusive_ptr::decref(twin);
  }
}

} // namespace flagos
