// SPDX-License-Identifier: Apache-2.0
// Memory: allocations, copies, and use in another process.
#include "simulated.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace simulated {

namespace {

struct Handle {
  int64_t process;
  int64_t file;
  uint64_t size;
  char rest[40];
};
static_assert(sizeof(Handle) == 64, "a handle is passed by value");

// Two mappings of a file: a closed one for the device's address, and one for its work.
Code map_twice(int file, size_t size, uintptr_t* address, Block* block) {
  void* outside = mmap(nullptr, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  void* within = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (outside == MAP_FAILED || within == MAP_FAILED) {
    return kMemoryAllocation;
  }
  *address = reinterpret_cast<uintptr_t>(outside);
  block->file = file;
  block->inside = reinterpret_cast<uintptr_t>(within);
  return kSuccess;
}

void unmap(uintptr_t address, const Block& block) {
  munmap(reinterpret_cast<void*>(address), block.size);
  if (block.inside != address) {
    munmap(reinterpret_cast<void*>(block.inside), block.size);
  }
  if (block.file >= 0) {
    close(block.file);
  }
}

// Takes away a block that begins here and that `fits`.
Code take(const char* call, void* address, const std::function<bool(const Block&)>& fits) {
  if (Code code = begin_on_device(call)) {
    return code;
  }
  if (address == nullptr) {
    return kSuccess;
  }
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = state.blocks.find(reinterpret_cast<uintptr_t>(address));
  if (found == state.blocks.end() || !fits(*found->second)) {
    return refuse(call, kInvalidValue, "no such memory begins at this address");
  }
  const Block& block = *found->second;
  if (!block.pending.empty()) {
    return refuse(call, kInvalidValue, "work that uses the memory is queued");
  }
  if (block.device >= 0 && !block.imported) {
    state.used[block.device] -= block.size;
  }
  unmap(found->first, block);
  state.blocks.erase(found);
  return kSuccess;
}

} // namespace

std::shared_ptr<Block> block_of(const void* address, size_t size, uintptr_t* start) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto after = state.blocks.upper_bound(at);
  if (after == state.blocks.begin()) {
    return nullptr;
  }
  --after;
  if (at + size > after->first + after->second->size || at >= after->first + after->second->size) {
    return nullptr;
  }
  if (start != nullptr) {
    *start = after->first;
  }
  return after->second;
}

machine::Use use_of(const std::shared_ptr<Block>& block, const void* address, size_t size) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return {block, begin, begin + size, true};
}

char* inside(const void* address) {
  uintptr_t start = 0;
  const auto block = block_of(address, 1, &start);
  const auto at = reinterpret_cast<uintptr_t>(address);
  return reinterpret_cast<char*>(block != nullptr ? block->inside + (at - start) : at);
}

} // namespace simulated

EXPORT Code mcMemGetInfo(size_t* free, size_t* total) {
  if (Code code = begin_on_device("mcMemGetInfo")) {
    return code;
  }
  if (free == nullptr || total == nullptr) {
    return refuse("mcMemGetInfo", kInvalidValue, "an output is NULL");
  }
  std::lock_guard<std::mutex> lock(mutex);
  return *total = kTotal, *free = kTotal - state.used[current], kSuccess;
}

EXPORT Code mcMalloc(void** address, size_t size) {
  if (Code code = begin_on_device("mcMalloc")) {
    return code;
  }
  if (address == nullptr || size == 0) {
    return refuse("mcMalloc", kInvalidValue, "no output, or no bytes");
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (size > kTotal - state.used[current]) {
    return end(kMemoryAllocation);
  }
  const auto block = std::make_shared<Block>(size, current, -1, 0);
  const int file = memfd_create("simulated-metax", MFD_CLOEXEC);
  uintptr_t start = 0;
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0 ||
      map_twice(file, size, &start, block.get()) != kSuccess) {
    return end(kMemoryAllocation);
  }
  state.used[current] += size;
  state.blocks[start] = block;
  *address = reinterpret_cast<void*>(start);
  return kSuccess;
}

EXPORT Code mcFree(void* address) {
  return take("mcFree", address, [](const Block& block) { return block.device >= 0 && !block.imported; });
}

EXPORT Code mcMallocHost(void** address, size_t size, unsigned flags) {
  if (Code code = begin_on_device("mcMallocHost")) {
    return code;
  }
  if (address == nullptr || size == 0 || flags > 7) {
    return refuse("mcMallocHost", kInvalidValue, "no output, no bytes, or flags " + std::to_string(flags));
  }
  void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    return end(kMemoryAllocation);
  }
  std::lock_guard<std::mutex> lock(mutex);
  state.blocks[reinterpret_cast<uintptr_t>(start)] =
      std::make_shared<Block>(size, -1, -1, reinterpret_cast<uintptr_t>(start));
  return *address = start, kSuccess;
}

EXPORT Code mcFreeHost(void* address) {
  return take("mcFreeHost", address, [](const Block& block) { return block.device < 0; });
}

EXPORT Code mcMemcpyAsync(void* to, const void* from, size_t size, int kind, void* handle) {
  const char* const call = "mcMemcpyAsync";
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  std::unique_lock<std::mutex> lock(mutex);
  const auto target = block_of(to, size), source = block_of(from, size);
  if ((target == nullptr && block_of(to, 1) != nullptr) || (source == nullptr && block_of(from, 1) != nullptr)) {
    return refuse(call, kInvalidValue, "bytes beyond the end of an allocation");
  }
  const bool to_device = target != nullptr && target->device >= 0;
  const bool from_device = source != nullptr && source->device >= 0;
  const int actual = (to_device ? 1 : 0) + (from_device ? 2 : 0);
  if (kind != 4 && kind != actual) {
    return refuse(
        call, kInvalidValue, "the kind " + std::to_string(kind) + " for a copy of kind " + std::to_string(actual));
  }
  const bool ordinary = target == nullptr || source == nullptr || (!to_device && !from_device);
  if (ordinary && stream->capture != nullptr) {
    stream->capture->invalid = true;
    return refuse(call, kCaptureUnsupported, "a copy of ordinary memory on a captured stream");
  }
  Work work{call, nullptr, {}};
  for (const auto& [block, address] : {std::pair{target, static_cast<const void*>(to)}, std::pair{source, from}}) {
    if (block != nullptr) {
      work.uses.push_back(use_of(block, address, size));
    }
  }
  work.run = [there = inside(to), here = inside(from), size] {
    std::memmove(there, here, size);
    return 0;
  };
  push(stream, std::move(work));
  if (ordinary) {
    machine::drain(lock, *stream);
  }
  return end(state.lost);
}

EXPORT Code mcPointerGetAttribute(void* value, int attribute, void* address) {
  if (Code code = begin_on_device("mcPointerGetAttribute")) {
    return code;
  }
  if (value == nullptr || attribute != 3) {
    return refuse("mcPointerGetAttribute", kInvalidValue, "no output, or another attribute");
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (block_of(address, 1) == nullptr) {
    return end(kInvalidValue);
  }
  std::memcpy(value, &address, sizeof address);
  return kSuccess;
}

EXPORT Code mcIpcGetMemHandle(Handle* handle, void* address) {
  const char* const call = "mcIpcGetMemHandle";
  if (Code code = begin_on_device(call)) {
    return code;
  }
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = state.blocks.find(reinterpret_cast<uintptr_t>(address));
  const bool own = found != state.blocks.end() && found->second->device >= 0 && !found->second->imported;
  if (handle == nullptr || !own) {
    return refuse(call, kInvalidValue, "no output, or no allocation of this process begins here");
  }
  *handle = Handle{getpid(), found->second->file, found->second->size, {}};
  return kSuccess;
}

EXPORT Code mcIpcOpenMemHandle(void** address, Handle handle, unsigned flags) {
  const char* const call = "mcIpcOpenMemHandle";
  if (Code code = begin_on_device(call)) {
    return code;
  }
  if (address == nullptr || flags != 1) {
    return refuse(call, kInvalidValue, "no output, or flags " + std::to_string(flags));
  }
  if (handle.process == getpid()) {
    return refuse(call, kInvalidValue, "the handle is of this process");
  }
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat found;
  if (file < 0 || fstat(file, &found) != 0 || static_cast<uint64_t>(found.st_size) != handle.size) {
    return end(kInvalidValue);
  }
  std::lock_guard<std::mutex> lock(mutex);
  const auto block = std::make_shared<Block>(handle.size, current, file, 0);
  block->imported = true;
  uintptr_t start = 0;
  if (map_twice(file, handle.size, &start, block.get()) != kSuccess) {
    return end(kMemoryAllocation);
  }
  state.blocks[start] = block;
  return *address = reinterpret_cast<void*>(start), kSuccess;
}

EXPORT Code mcIpcCloseMemHandle(void* address) {
  return take("mcIpcCloseMemHandle", address, [](const Block& block) { return block.imported; });
}
