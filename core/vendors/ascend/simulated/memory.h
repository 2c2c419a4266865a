// SPDX-License-Identifier: Apache-2.0
// Which memory exists, on devices and pinned on the host, and which of it queued work uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "../../kit/simulated/machine.h"
#include "arena.h"

namespace simulated_ascend {

class Call;

enum class Place { kDevice, kPinned, kRegistered, kImported };

struct Block : machine::Block {
  Place place;
  int device; // -1 on the host
  uintptr_t address;
  size_t size;         // asked for
  uintptr_t first = 0; // of its pages
  size_t pages = 0;    // bytes
  bool freed = false;
  int shared = -1; // its place among the memory that other processes may import

  bool on_host() const {
    return place == Place::kPinned || place == Place::kRegistered;
  }
  // Gives the memory back if it was freed and no queued work uses it.
  void released() override;
};

using machine::add_pending;
using machine::races;
using machine::remove_pending;
using machine::Use;

// All under the lock.
Arena& arena(int device);
// The live block that holds this address; nothing for memory that the runtime does not know.
std::shared_ptr<Block> block_of(const void* address);
// Whether the address is one of some device's, allocated or not.
bool is_device_address(const void* address);
// What the process reads and writes at an address of a block.
char* contents(const Block& block, uintptr_t address);
// Why this range is not within the block; empty if it is.
std::string beyond(const Block& block, uintptr_t address, size_t bytes);

std::shared_ptr<Block> take_block(int device, size_t size, size_t padded);
void free_block(Call& call, const std::shared_ptr<Block>& block);
std::shared_ptr<Block> add_imported(int device, uintptr_t first, size_t pages, uintptr_t address, size_t size);
void remove_imported(const std::shared_ptr<Block>& block);
// Gives back all memory of a device; how many blocks there were.
size_t reset_memory(int device);
size_t live_memory(const std::string& kind);

} // namespace simulated_ascend
