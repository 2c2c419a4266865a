// SPDX-License-Identifier: Apache-2.0
#include "ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "call.h"
#include "device.h"

namespace simulated_ascend {

namespace {

constexpr size_t kKeyBytes = 65;
constexpr size_t kShared = 1024;
constexpr size_t kPids = 8;

// One exported block, in memory that importers map too.
struct Shared {
  std::atomic<uint32_t> number; // 0 when the place is free
  std::atomic<uint32_t> imports;
  int device;
  bool any_process;
  int32_t pids[kPids];
  size_t first; // as offset in the exporter's file
  size_t pages;
  size_t shift; // of the block within its pages
  size_t size;
};

struct Import {
  std::shared_ptr<Block> block;
  Shared* shared;
};

Shared* own_table = nullptr;
int own_file = -1;
uint32_t last_number = 0;
auto& imports = *new std::map<std::string, Import>;

Shared* map_table(int file) {
  void* at = mmap(nullptr, kShared * sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Shared*>(at);
}

bool make_table() {
  if (own_table)
    return true;
  own_file = memfd_create("simulated-ascend-ipc", MFD_CLOEXEC);
  if (own_file < 0 || ftruncate(own_file, kShared * sizeof(Shared)) != 0)
    return false;
  own_table = map_table(own_file);
  return own_table != nullptr;
}

// What a key says: the exporter, its two files, and the place in its table.
struct Key {
  int pid;
  int table;
  int memory;
  size_t place;
  uint32_t number;
};

bool parse(const char* text, Key& key) {
  return std::sscanf(
             text, "ascend-%d-%d-%d-%zu-%" SCNu32, &key.pid, &key.table, &key.memory, &key.place, &key.number) == 5 &&
      key.place < kShared;
}

// The file of another process.
int open_of(int pid, int file) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, file);
  return open(path, O_RDWR | O_CLOEXEC);
}

bool may_import(const Shared& shared) {
  return shared.any_process ||
      std::find(std::begin(shared.pids), std::end(shared.pids), getpid()) != std::end(shared.pids);
}

// The place of a key that this process has made.
Shared* exported(Call& call, const char* text) {
  Key key{};
  if (!text || !parse(text, key) || key.pid != getpid() || !own_table || own_table[key.place].number != key.number) {
    call.refuse(kParamInvalid, "not a key of this process, or its memory was freed");
    return nullptr;
  }
  return &own_table[key.place];
}

} // namespace

uint32_t ipc_imports(const Block& block) {
  return block.shared < 0 ? 0 : own_table[block.shared].imports.load();
}

void ipc_forget(const Block& block) {
  if (block.shared >= 0)
    own_table[block.shared].number = 0;
}

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC aclError aclrtIpcMemGetExportKey(void* address, size_t size, char* key, size_t length, uint64_t flags) {
  ENTER(kContext);
  if (!key || length != kKeyBytes || flags > 1)
    return call.refuse(kParamInvalid, "a key has 65 bytes, and flags are 0 or 1");
  const auto block = block_of(address);
  if (!block || block->place != Place::kDevice || block->address != reinterpret_cast<uintptr_t>(address) || size == 0 ||
      size > block->size)
    return call.refuse(kParamInvalid, "not the start of a block, or more than the block");
  if (!make_table())
    return call.fail(kInternalError, "the table of exports cannot be made");
  const Arena& memory = arena(block->device);
  if (block->shared < 0) {
    for (size_t place = 0; place < kShared && block->shared < 0; ++place) {
      if (own_table[place].number == 0 && own_table[place].imports == 0)
        block->shared = static_cast<int>(place);
    }
    if (block->shared < 0)
      return call.fail(kInternalError, "too many exports");
    Shared& shared = own_table[block->shared];
    shared.device = block->device;
    shared.first = memory.offset_of(block->first);
    shared.pages = block->pages;
    shared.shift = block->address - block->first;
    shared.size = size;
    std::fill(std::begin(shared.pids), std::end(shared.pids), 0);
    shared.number = ++last_number;
  }
  Shared& shared = own_table[block->shared];
  shared.any_process = flags == 1;
  std::snprintf(
      key,
      length,
      "ascend-%d-%d-%d-%d-%" PRIu32,
      getpid(),
      own_file,
      memory.file(),
      block->shared,
      shared.number.load());
  return kSuccess;
}

ACL_FUNC aclError aclrtIpcMemSetImportPid(const char* key, int32_t* pids, size_t count) {
  ENTER(kContext);
  if (!pids || count == 0 || count > kPids)
    return call.refuse(kParamInvalid, "no processes, or too many");
  Shared* const shared = exported(call, key);
  if (shared)
    std::copy(pids, pids + count, shared->pids);
  return call.code;
}

ACL_FUNC aclError aclrtIpcMemImportByKey(void** out, const char* text, uint64_t flags) {
  ENTER(kContext);
  Key key{};
  if (!out || !text || flags > 1 || !parse(text, key))
    return call.refuse(kParamInvalid, "no output, not a key, or unknown flags");
  if (key.pid == getpid())
    return call.refuse(kParamInvalid, "the key is of this process");
  if (imports.count(text))
    return call.refuse(kParamInvalid, "imported already");
  const int table_file = open_of(key.pid, key.table);
  Shared* const table = table_file < 0 ? nullptr : map_table(table_file);
  if (table_file >= 0)
    close(table_file);
  if (!table || table[key.place].number != key.number)
    return call.refuse(kParamInvalid, "the exporter has ended, or has freed the memory");
  Shared& shared = table[key.place];
  if (!may_import(shared))
    return call.refuse(kNoPermission, "the exporter does not let this process import");
  if (shared.device != call.context().device && !(flags & 1))
    return call.refuse(kNoPermission, "memory of another device without ENABLE_PEER_ACCESS");
  const int file = open_of(key.pid, key.memory);
  const uintptr_t first = file < 0 ? 0 : arena(shared.device).import(file, shared.first, shared.pages);
  if (file >= 0)
    close(file);
  if (!first)
    return call.fail(kMemoryAllocation, "the memory cannot be mapped");
  ++shared.imports;
  const auto block = add_imported(shared.device, first, shared.pages, first + shared.shift, shared.size);
  imports[text] = {block, &shared};
  *out = reinterpret_cast<void*>(block->address);
  return kSuccess;
}

ACL_FUNC aclError aclrtIpcMemClose(const char* text) {
  ENTER(kContext);
  const auto found = imports.find(text ? text : "");
  if (found == imports.end()) {
    // The exporter may close its own key.
    exported(call, text);
    return call.code;
  }
  const auto block = found->second.block;
  if (!block->pending.empty())
    call.record("the block is used by work that has not run");
  call.wait(-1, [&] { return block->pending.empty(); });
  --found->second.shared->imports;
  imports.erase(found);
  remove_imported(block);
  return kSuccess;
}
