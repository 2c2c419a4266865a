// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "call.h"
#include "device.h"
#include "ipc.h"
#include "report.h"
#include "settings.h"

namespace simulated_ascend {

namespace {

// By address. Registered memory may lie in no other block.
auto& blocks = *new std::map<uintptr_t, std::shared_ptr<Block>>;
// Addresses that were given back and not given out again, so that a double free is told from a foreign pointer.
auto& freed = *new std::set<uintptr_t>;

uintptr_t number(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

void add(const std::shared_ptr<Block>& block) {
  freed.erase(block->address);
  blocks[block->address] = block;
}

void remove(const std::shared_ptr<Block>& block) {
  blocks.erase(block->address);
  freed.insert(block->address);
  block->freed = true;
}

} // namespace

Arena& arena(int device) {
  static auto& all = *new std::map<int, Arena>;
  auto [found, is_new] = all.try_emplace(device);
  if (is_new)
    found->second.reserve(settings().memory);
  return found->second;
}

std::shared_ptr<Block> block_of(const void* address) {
  auto next = blocks.upper_bound(number(address));
  if (next == blocks.begin())
    return nullptr;
  const auto& block = std::prev(next)->second;
  return number(address) < block->address + block->size ? block : nullptr;
}

bool is_device_address(const void* address) {
  for (size_t device = 0; device < devices().size(); ++device) {
    if (arena(static_cast<int>(device)).holds(number(address)))
      return true;
  }
  return false;
}

char* contents(const Block& block, uintptr_t address) {
  return block.on_host() ? reinterpret_cast<char*>(address) : arena(block.device).translate(address);
}

std::string beyond(const Block& block, uintptr_t address, size_t bytes) {
  const uintptr_t end = block.address + block.size;
  if (address >= block.address && address <= end && bytes <= end - address)
    return "";
  return std::to_string(address + bytes - end) + " bytes beyond the end of its block of " + std::to_string(block.size);
}

void Block::released() {
  if (!freed || !pending.empty())
    return;
  if (place == Place::kDevice)
    arena(device).give_back(first, pages);
  if (place == Place::kPinned)
    std::free(reinterpret_cast<void*>(address));
}

std::shared_ptr<Block> take_block(int device, size_t size, size_t padded) {
  // No better aligned than promised: a page's first bytes stay unused.
  const size_t alignment = settings().alignment;
  const size_t shift = alignment < kPage ? alignment : 0;
  const size_t pages = (padded + shift + kPage - 1) / kPage * kPage;
  const uintptr_t first = pages < padded ? 0 : arena(device).take(pages);
  if (!first)
    return nullptr;
  auto block = std::make_shared<Block>();
  block->place = Place::kDevice;
  block->device = device;
  block->address = first + shift;
  block->size = size;
  block->first = first;
  block->pages = pages;
  add(block);
  return block;
}

std::shared_ptr<Block> add_imported(int device, uintptr_t first, size_t pages, uintptr_t address, size_t size) {
  auto block = std::make_shared<Block>();
  block->place = Place::kImported;
  block->device = device;
  block->address = address;
  block->size = size;
  block->first = first;
  block->pages = pages;
  add(block);
  return block;
}

void remove_imported(const std::shared_ptr<Block>& block) {
  remove(block);
  arena(block->device).close_import(block->first, block->pages);
}

void free_block(Call& call, const std::shared_ptr<Block>& block) {
  if (!block->pending.empty())
    call.record("the block is used by work that has not run");
  if (ipc_imports(*block))
    call.record("another process has not closed the block that it imported");
  ipc_forget(*block);
  remove(block);
  block->released();
}

size_t reset_memory(int device) {
  std::vector<std::shared_ptr<Block>> all;
  for (const auto& [address, block] : blocks) {
    if (block->device == device && block->place == Place::kDevice)
      all.push_back(block);
  }
  for (const auto& block : all) {
    remove(block);
    block->released();
  }
  return all.size();
}

size_t live_memory(const std::string& kind) {
  static const std::map<std::string, Place> places = {
      {"blocks", Place::kDevice},
      {"host_blocks", Place::kPinned},
      {"registered", Place::kRegistered},
      {"imported", Place::kImported},
  };
  const auto found = places.find(kind);
  if (found == places.end())
    return SIZE_MAX;
  return static_cast<size_t>(std::count_if(
      blocks.begin(), blocks.end(), [&](const auto& each) { return each.second->place == found->second; }));
}

namespace {

// The start of a live block of this place, or what is wrong.
std::shared_ptr<Block> block_to_free(Call& call, void* address, Place place) {
  if (!address) {
    call.refuse(kParamInvalid, "the address is NULL");
    return nullptr;
  }
  auto block = block_of(address);
  if (!block) {
    const bool twice = freed.count(number(address)) != 0;
    call.refuse(kParamInvalid, twice ? "freed twice" : "the address is not one of the runtime's");
    return nullptr;
  }
  if (block->place != place) {
    call.refuse(kParamInvalid, block->on_host() ? "memory of the host" : "memory of a device");
    return nullptr;
  }
  if (block->address != number(address)) {
    call.refuse(kParamInvalid, "not the start of a block");
    return nullptr;
  }
  return block;
}

aclError allocate(Call& call, void** out, size_t size, int policy, bool plus_32) {
  constexpr int kFlags = 0x100 | 0x1000 | 0x100000;
  if (!out || size == 0)
    return call.refuse(kParamInvalid, out ? "the size is 0" : "the output is NULL");
  *out = nullptr;
  if ((policy & ~kFlags) < 0 || (policy & ~kFlags) > 7)
    return call.refuse(kInvalidMallocType, "there is no such policy: " + std::to_string(policy));
  size_t padded = (size + 31) / 32 * 32;
  // The chips since 950 need no room for what kernels read beyond the end.
  if (plus_32 && settings().soc.find("Ascend95") != 0)
    padded += 32;
  const int device = call.context().device;
  const auto block = padded < size ? nullptr : take_block(device, size, padded);
  if (!block)
    return call.fail(
        kMemoryAllocation, "device " + std::to_string(device) + " has not " + std::to_string(size) + " bytes left");
  *out = reinterpret_cast<void*>(block->address);
  return kSuccess;
}

} // namespace

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC aclError aclrtMalloc(void** out, size_t size, int policy) {
  ENTER(kContext);
  return allocate(call, out, size, policy, true);
}

ACL_FUNC aclError aclrtMallocAlign32(void** out, size_t size, int policy) {
  ENTER(kContext);
  return allocate(call, out, size, policy, false);
}

ACL_FUNC aclError aclrtMallocWithCfg(void** out, size_t size, int policy, void* config) {
  ENTER(kContext);
  if (config)
    return call.fail(kFeatureNotSupport, "the simulator knows no configuration of allocations");
  return allocate(call, out, size, policy, false);
}

ACL_FUNC aclError aclrtFree(void* address) {
  ENTER(kContext);
  const auto block = block_to_free(call, address, Place::kDevice);
  if (block)
    free_block(call, block);
  return call.code;
}

ACL_FUNC aclError aclrtFreeWithDevSync(void* address) {
  ENTER(kContext);
  const auto block = block_to_free(call, address, Place::kDevice);
  if (!block)
    return call.code;
  call.wait(-1, [&] { return block->pending.empty(); });
  free_block(call, block);
  return call.code;
}

ACL_FUNC aclError aclrtMallocHost(void** out, size_t size) {
  ENTER(kContext);
  if (!out || size == 0)
    return call.refuse(kParamInvalid, out ? "the size is 0" : "the output is NULL");
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, (size + 63) / 64 * 64) != 0)
    return call.fail(kMemoryAllocation, "the host has no memory left");
  auto block = std::make_shared<Block>();
  block->place = Place::kPinned;
  block->device = -1;
  block->address = number(memory);
  block->size = size;
  add(block);
  *out = memory;
  return kSuccess;
}

ACL_FUNC aclError aclrtFreeHost(void* address) {
  ENTER(kContext);
  const auto block = block_to_free(call, address, Place::kPinned);
  if (block)
    free_block(call, block);
  return call.code;
}

ACL_FUNC aclError aclrtHostRegister(void* address, uint64_t size, int type, void** device_address) {
  ENTER(kContext);
  if (!address || size == 0 || !device_address)
    return call.refuse(kParamInvalid, "no memory, no size or no output");
  if (type != 0)
    return call.fail(kFeatureNotSupport, "the simulator registers by MAPPED alone");
  for (uint64_t at : {uint64_t{0}, size - 1}) {
    if (block_of(static_cast<char*>(address) + at))
      return call.refuse(kParamInvalid, "the range overlaps memory that the runtime has");
  }
  auto block = std::make_shared<Block>();
  block->place = Place::kRegistered;
  block->device = -1;
  block->address = number(address);
  block->size = size;
  add(block);
  *device_address = address;
  return kSuccess;
}

ACL_FUNC aclError aclrtHostUnregister(void* address) {
  ENTER(kContext);
  const auto block = block_to_free(call, address, Place::kRegistered);
  if (block)
    free_block(call, block);
  return call.code;
}

ACL_FUNC aclError aclrtPointerGetAttributes(const void* address, aclrtPtrAttributes* out) {
  ENTER(kContext | kInFunction);
  if (!address || !out)
    return call.refuse(kParamInvalid, "no address or no output");
  const auto block = block_of(address);
  *out = {};
  out->pageSize = kPage;
  out->location.type = block ? !block->on_host() : 2;
  out->location.id = block && !block->on_host() ? static_cast<uint32_t>(block->device) : 0;
  return kSuccess;
}

ACL_FUNC aclError aclrtGetMemInfo(int attribute, size_t* free, size_t* total) {
  ENTER(kContext);
  if (!free || !total)
    return call.refuse(kParamInvalid, "an output is NULL");
  // The chip has HBM; what it lacks reads 0 of 0.
  const bool hbm = attribute == 1 || attribute == 4 || attribute == 5;
  const Arena& memory = arena(call.context().device);
  *total = hbm ? memory.capacity : 0;
  *free = hbm ? memory.capacity - memory.used : 0;
  return kSuccess;
}
