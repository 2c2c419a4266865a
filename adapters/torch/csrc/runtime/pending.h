// SPDX-License-Identifier: Apache-2.0
// Calls that returned to the program and whose work is not yet on the device: automatic graphs follow them (see
// `following/`). Whatever looks at the device, orders it or lends its memory has them launched first.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "runtime/core.h"

namespace flagos {

// Whether calls may wait in the queues of a library's streams (see `vendor_library/queue.h`), which the core keeps in
// order with all else on these streams. Never taken back.
extern bool calls_queued;

// Whether the program wants automatic graphs. One branch of every call.
extern bool graphs_wanted;

inline bool are_graphs_wanted() {
  return C10_UNLIKELY(__atomic_load_n(&graphs_wanted, __ATOMIC_RELAXED));
}

// Whether there are such calls, or calls that are being captured.
extern bool calls_pending;

// Whether automatic graphs know that this thread uses the device.
extern thread_local bool is_thread_known __attribute__((tls_model("initial-exec")));

// What the room `following` does; null as long as nothing was followed in the process.
extern void (*launch_pending_slowly)(const char* why);
extern void (*know_thread)();                               // before the first time that this thread takes an address
extern void (*forget_lent)(const c10::DataPtr& memory);     // what graphs know of memory that was lent
extern bool (*release_graphs)();                            // false if there was nothing to give back
extern void (*wait_for_moves)();                            // of tensors, which no capture may wait for
extern bool (*is_on_another_stream)();                      // than the one that is followed
extern void (*note_unseen_call)();                          // that they see nothing of
extern bool (*keep_until_launched)(c10::StorageImpl* twin); // false for memory that need not wait
extern bool (*give_back_planned)(void* data);               // false for memory that is not planned
extern const c10::DataPtr* (*planned_block_of)(const c10::DataPtr& memory); // null for memory that is not planned

inline void know_this_thread() {
  if (C10_UNLIKELY(!is_thread_known)) {
    know_thread();
  }
}

// The memory of the device's allocator in which `memory` is.
inline const c10::DataPtr& memory_behind(const c10::DataPtr& memory) {
  const c10::DataPtr* block = planned_block_of != nullptr ? planned_block_of(memory) : nullptr;
  return block != nullptr ? *block : memory;
}

// Drops a reference on the native storage of a flagos one that ended, now or when calls that may read its memory are
// launched.
void release_when_launched(c10::StorageImpl* twin);

// Launches them. `why` counts in the report: the name of an operator, or of what else looks at the device.
inline void launch_pending(const char* why) {
  if (are_graphs_wanted()) {
    know_this_thread();
  }
  if (C10_UNLIKELY(__atomic_load_n(&calls_pending, __ATOMIC_ACQUIRE))) {
    launch_pending_slowly(why);
  }
}

// To be called before a call that automatic graphs do not see touches memory: it may do so on another stream.
inline void launch_before_unseen_call(const char* name) {
  launch_pending(name);
  if (are_graphs_wanted()) {
    note_unseen_call();
  }
}

// To be called before the program begins to capture a graph of its own.
void prepare_capture();

// To be called before others than operators of flagos on the current stream get the address of a flagos storage: from
// then on no call on that memory is followed, and it stays where it is.
void lend(const c10::StorageImpl* storage);
void lend(const c10::DataPtr& memory); // of a flagos storage

// What was lent last to one who borrows the same memory in most calls: it is not looked up again.
class LastLent {
 public:
  void lend(const c10::StorageImpl* storage); // as above

 private:
  const void* address_ = nullptr;
  uint64_t life_ = 0;
};

// Nothing for a tensor on another device, or without memory.
template <class Tensor>
void lend_memory_of(const Tensor& tensor) {
  if (tensor.defined() && tensor.device().type() == kFlagos && tensor.has_storage()) {
    lend(tensor.storage().unsafeGetStorageImpl());
  }
}

// The same if the current stream is another than the one that is followed.
template <class Tensor>
void lend_to_another_stream(const Tensor& tensor) {
  if (are_graphs_wanted() && is_on_another_stream()) {
    lend_memory_of(tensor);
  }
}

// Memory that others know, by address.
class LentMemory {
 public:
  static LentMemory& instance();
  // Returns whether it was not lent yet in this life.
  bool add(const void* address);
  // Whether this memory is lent, and not memory that came to the place of one that was.
  bool has(const void* address) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, uint64_t> lives_;
  std::atomic<bool> any_{false};
};

// Serves the allocations of a scope from memory that is planned.
class PlannedMemory {
 public:
  virtual ~PlannedMemory() = default;
  // Null memory if the plan has none.
  virtual c10::DataPtr allocate(size_t nbytes, c10::Device label) = 0;
};

// That of this thread; null outside of such a scope.
extern thread_local PlannedMemory* planned_memory __attribute__((tls_model("initial-exec")));

} // namespace flagos
