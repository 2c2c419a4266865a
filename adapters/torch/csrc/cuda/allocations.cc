// SPDX-License-Identifier: Apache-2.0
#include "cuda/allocations.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/pending.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

// As the Itanium C++ ABI passes them, a virtual function is called like a function whose first argument is the object.
using Allocate = c10::DataPtr (*)(c10::Allocator* self, size_t nbytes);

// An allocator's table of virtual functions, by the Itanium C++ ABI: the offset to the top and the type stand before
// the functions. In a table of ours the function that had the place of `allocate` stands before these.
struct Table {
  static constexpr size_t kBefore = 2;
  static constexpr size_t kMost = 160; // functions; CUDAAllocator of torch 2.15 has some 50

  void** first;

  explicit Table(c10::Allocator* allocator)
      : first(__atomic_load_n(reinterpret_cast<void***>(allocator), __ATOMIC_ACQUIRE)) {}

  // Of a table of ours.
  Allocate original() const {
    return reinterpret_cast<Allocate>(*(first - kBefore - 1));
  }

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

c10::DataPtr allocate_planned(c10::Allocator* self, size_t nbytes) {
  if (C10_UNLIKELY(planned_memory != nullptr)) {
    if (c10::DataPtr planned = planned_memory->allocate(nbytes, native_device(current_device()))) {
      return planned;
    }
  }
  const Allocate original = Table(self).original();
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
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  c10::Allocator* allocator = cuda_allocator();
  const Table theirs(allocator);
  const size_t place = place_of_allocate();
  void* const ours = reinterpret_cast<void*>(&allocate_planned);
  if (theirs.first[place] == ours) {
    return;
  }
  const size_t functions = theirs.readable();
  TORCH_CHECK_NOT_IMPLEMENTED(
      place < functions,
      "flagos: torch's allocator of CUDA has no table of functions that is known; set FLAGOS_GRAPHS=off");
  auto* words = new std::vector<void*>{theirs.first[place]}; // as long as the process
  words->insert(words->end(), theirs.first - Table::kBefore, theirs.first + functions);
  void** first = words->data() + 1 + Table::kBefore;
  first[place] = ours;
  __atomic_store_n(reinterpret_cast<void***>(allocator), first, __ATOMIC_RELEASE);
}

} // namespace flagos
