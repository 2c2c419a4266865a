// SPDX-License-Identifier: Apache-2.0
#include "cuda/allocations.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/pending.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

// As the Itanium C++ ABI passes them, a virtual function is called like a function whose first argument is the object.
using Allocate = c10::DataPtr (*)(c10::Allocator* self, size_t nbytes);

// An allocator's table of virtual functions, by the Itanium C++ ABI: the offset to the top and the type stand before
// the functions.
struct Table {
  static constexpr size_t kBefore = 2;
  static constexpr size_t kMost = 160; // functions; CUDAAllocator of torch 2.15 has some 50

  void** first;

  explicit Table(c10::Allocator* allocator) : first(*reinterpret_cast<void***>(allocator)) {}

  // The number of words that may be read from the first function on.
  size_t readable() const {
    std::pair<uintptr_t, size_t> found{reinterpret_cast<uintptr_t>(first), 0};
    dl_iterate_phdr(
        [](dl_phdr_info* library, size_t /*size*/, void* context) {
          auto* found = static_cast<std::pair<uintptr_t, size_t>*>(context);
          for (int i = 0; i < library->dlpi_phnum; ++i) {
            const auto& part = library->dlpi_phdr[i];
            const uintptr_t begin = library->dlpi_addr + part.p_vaddr;
            if (part.p_type == PT_LOAD && begin <= found->first && found->first < begin + part.p_memsz) {
              found->second = (begin + part.p_memsz - found->first) / sizeof(void*);
              return 1;
            }
          }
          return 0;
        },
        &found);
    return std::min(found.second, kMost);
  }
};

// The place of `allocate` in the table: a pointer to a virtual member function says it.
size_t place_of_allocate() {
  auto member = &c10::Allocator::allocate;
  uintptr_t words[2] = {};
  static_assert(sizeof member == sizeof words);
  std::memcpy(static_cast<void*>(words), &member, sizeof words);
#if defined(__aarch64__) || defined(__arm__) || defined(__mips__)
  return words[0] / sizeof(void*);
#else
  return (words[0] - 1) / sizeof(void*);
#endif
}

// What the allocators had in that place, by their new tables.
std::mutex tables_mutex;
std::unordered_map<void**, Allocate>& originals() {
  static auto* originals = new std::unordered_map<void**, Allocate>(); // never destroyed, like the allocators
  return *originals;
}

// One allocator serves nearly every process.
std::atomic<void**> last_table{nullptr};
std::atomic<Allocate> last_original{nullptr};

Allocate original_of(c10::Allocator* allocator) {
  void** table = Table(allocator).first;
  if (C10_LIKELY(last_table.load(std::memory_order_acquire) == table)) {
    return last_original.load(std::memory_order_relaxed);
  }
  const std::lock_guard<std::mutex> lock(tables_mutex);
  return originals().at(table);
}

c10::DataPtr allocate_planned(c10::Allocator* self, size_t nbytes) {
  if (C10_UNLIKELY(planned_memory != nullptr)) {
    if (c10::DataPtr planned = planned_memory->allocate(nbytes, native_device(current_device()))) {
      return planned;
    }
  }
  const Allocate original = original_of(self);
  try {
    return original(self, nbytes);
  } catch (const c10::OutOfMemoryError&) {
    if (release_graphs == nullptr || !release_graphs()) {
      throw;
    }
  }
  return original(self, nbytes);
}

} // namespace

c10::DeviceAllocator* cuda_allocator() {
  return static_cast<c10::DeviceAllocator*>(at::detail::getCUDAHooks().getCUDADeviceAllocator());
}

void plan_allocations() {
  c10::Allocator* allocator = cuda_allocator();
  const std::lock_guard<std::mutex> lock(tables_mutex);
  const Table table(allocator);
  if (originals().contains(table.first)) {
    return;
  }
  const size_t place = place_of_allocate();
  const size_t functions = table.readable();
  TORCH_CHECK_NOT_IMPLEMENTED(
      place < functions,
      "flagos: torch's allocator of CUDA has no table of functions that is known; set FLAGOS_GRAPHS=off");
  auto* words = new std::vector<void*>(table.first - Table::kBefore, table.first + functions); // as long as the process
  void** first = words->data() + Table::kBefore;
  const auto original = reinterpret_cast<Allocate>(first[place]);
  first[place] = reinterpret_cast<void*>(&allocate_planned);
  originals()[first] = original;
  last_original.store(original, std::memory_order_relaxed);
  last_table.store(first, std::memory_order_release);
  __atomic_store_n(reinterpret_cast<void***>(allocator), first, __ATOMIC_RELEASE);
}

} // namespace flagos
