// SPDX-License-Identifier: Apache-2.0
// The memory of one device, mapped twice: where its addresses point nobody can read or write, and copies and kernels
// use the other mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace simulated_ascend {

constexpr size_t kPage = 4096;

class Arena {
 public:
  // Addresses are taken from much more than `capacity`, so that a freed one is used again late.
  void reserve(size_t capacity);

  // The first address of this many whole pages, 0 if the device has not as much left.
  uintptr_t take(size_t bytes);
  void give_back(uintptr_t address, size_t bytes);
  // The same for memory of another process, given by its file; it costs this device nothing.
  uintptr_t import(int file, size_t offset, size_t bytes);
  void close_import(uintptr_t address, size_t bytes);

  bool holds(uintptr_t address) const;
  // Where the process can read and write what lies at a device address.
  char* translate(uintptr_t address) const;
  size_t offset_of(uintptr_t address) const;
  int file() const {
    return file_;
  }

  // Makes device addresses usable until as many calls of `close`.
  void open();
  void close();

  size_t capacity = 0;
  size_t used = 0;

 private:
  uintptr_t find_gap(size_t bytes);

  int file_ = -1;
  size_t span_ = 0;
  char* addresses_ = nullptr;
  char* contents_ = nullptr;
  std::map<size_t, size_t> taken_; // begin to end, as offsets
  size_t cursor_ = 0;
  unsigned openings_ = 0;
};

} // namespace simulated_ascend
