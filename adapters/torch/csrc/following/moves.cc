// SPDX-License-Identifier: Apache-2.0
// Tensors that are alive where a followed call has its result: they get memory elsewhere.
#include <algorithm>
#include <utility>

#include "following/follower.h"
#include "following/storage.h"
#include "runtime/scoped.h"
#include "runtime/storage.h"

namespace flagos::following {

namespace {

constexpr size_t kMostMoves = 1024; // that nobody waited for

} // namespace

// Moves what lives in a block; false if something must stay.
bool Follower::vacate(Block* block) {
  std::vector<Block*> there; // held, since a move may need the memory that others give back
  for (Block* other : blocks_->held()) {
    if (other->is_live() && other->overlaps(*block)) {
      other->hold();
      there.push_back(other);
    }
  }
  bool moved = true;
  for (Block* other : there) {
    moved = moved && move(other);
    other->drop();
  }
  return moved && block->is_free();
}

// Gives a tensor that is still alive memory elsewhere; false if it must stay.
bool Follower::move(Block* block) {
  if (block->is_lent() || users_ > 1) { // another thread may be on its way to the library with the address
    return false;
  }
  const c10::intrusive_ptr<c10::StorageImpl> storage = block->owner.lock();
  if (!storage) {
    return !block->is_live();
  }
  c10::StorageImpl* owner = owner_of(storage.get());
  const bool is_twin = owner != storage.get();
  if (owner == nullptr || block_of(owner->data_ptr()) != block ||
      (is_twin && c10::raw::intrusive_ptr::use_count(owner) != 1)) {
    return false;
  }
  if (chunk_ != nullptr) { // calls that are pending may have to write it yet
    const auto pending_end = chunk_->calls.begin() + static_cast<ptrdiff_t>(followed_);
    if (std::any_of(
            chunk_->calls.begin(), pending_end, [&](const Call& call) { return call.uses(block, block->data()); })) {
      return false;
    }
  }
  wait_for_unseen();
  const OnStream on(where_);
  c10::DataPtr memory;
  try {
    memory = native->planned_block(owner->nbytes(), where_.device);
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
  native->copy_bytes(memory.get(), block->data(), owner->nbytes(), where_.device);
  owner->set_data_ptr_noswap(std::move(memory)); // which frees the block
  if (is_twin) {
    refresh_from_twin(storage.get(), owner, where_.device);
  }
  note_move(storage->data());
  return true;
}

// Others who take the address may have waited for all that was done with the tensor before it moved, and would not wait
// for the copy.
void Follower::note_move(const void* address) {
  const Scoped inside(inside_, true); // an event launches what is pending, else
  if (moves_.size() >= kMostMoves) {
    wait_for_moves();
  }
  moves_.insert(address);
  last_move_.record(c10::impl::VirtualGuardImpl(kFlagos).getStream(c10::Device(kFlagos, where_.device)));
  ++moved_;
}

// Nobody knows which memory such calls use: what moves leaves its own to others.
void Follower::wait_for_unseen() {
  if (std::exchange(has_unseen_, false)) {
    const Scoped inside(inside_, true);
    c10::impl::VirtualGuardImpl(kFlagos).synchronizeDevice(where_.device);
  }
}

bool Follower::is_on_another_stream() const {
  return !inside_ && where_.device >= 0 && current_stream(where_.device) != where_.stream;
}

void Follower::note_unseen_call() {
  if (is_on_another_stream()) {
    wait_for_moves();
    has_unseen_ = true;
  }
}

void Follower::wait_for_moves() {
  if (!moves_.empty()) {
    const Scoped inside(inside_, true);
    last_move_.synchronize();
    moves_.clear();
  }
}

// Moves what still lives in plans that were dropped, whose memory is one piece.
void Follower::leave_dropped_plans() {
  for (Block* block : std::exchange(stranded_, {})) {
    if (block->is_live()) {
      move(block);
    }
    block->drop();
  }
}

} // namespace flagos::following
