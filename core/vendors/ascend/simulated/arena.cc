// SPDX-License-Identifier: Apache-2.0
#include "arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace simulated_ascend {

namespace {

// Beyond this, only the ends of a block are filled: a test of an exhausted device must not touch all of it.
constexpr size_t kFilled = size_t{32} << 20;

void check(bool fine, const char* what) {
  if (!fine) {
    std::perror(what);
    std::abort();
  }
}

char* map(size_t bytes, int protection, int file) {
  void* at = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  check(at != MAP_FAILED, "simulated ACL: mmap");
  return static_cast<char*>(at);
}

// Not a number in any float type: what is read before it is written shows.
void fill(char* at, size_t bytes) {
  if (bytes <= kFilled) {
    std::memset(at, 0xff, bytes);
    return;
  }
  std::memset(at, 0xff, kFilled / 2);
  std::memset(at + bytes - kFilled / 2, 0xff, kFilled / 2);
}

} // namespace

void Arena::reserve(size_t bytes) {
  capacity = bytes;
  span_ = std::max(bytes * 4, bytes + (size_t{16} << 30)) / kPage * kPage;
  file_ = memfd_create("simulated-ascend", MFD_CLOEXEC);
  check(file_ >= 0, "simulated ACL: memfd_create");
  check(ftruncate(file_, static_cast<off_t>(span_)) == 0, "simulated ACL: ftruncate");
  addresses_ = map(span_, PROT_NONE, file_);
  contents_ = map(span_, PROT_READ | PROT_WRITE, file_);
}

uintptr_t Arena::find_gap(size_t bytes) {
  // A page beyond every block stays free, so that blocks never touch.
  const size_t needed = bytes + kPage;
  for (size_t begin : {cursor_, size_t{0}}) {
    auto next = taken_.upper_bound(begin);
    if (next != taken_.begin())
      begin = std::max(begin, std::prev(next)->second + kPage);
    for (; begin + needed <= span_; ++next) {
      if (next == taken_.end() || next->first >= begin + needed) {
        taken_[begin] = begin + bytes;
        cursor_ = begin + needed;
        return reinterpret_cast<uintptr_t>(addresses_) + begin;
      }
      begin = next->second + kPage;
    }
  }
  return 0;
}

uintptr_t Arena::take(size_t bytes) {
  if (used + bytes > capacity)
    return 0;
  const uintptr_t address = find_gap(bytes);
  if (address) {
    used += bytes;
    fill(translate(address), bytes);
  }
  return address;
}

void Arena::give_back(uintptr_t address, size_t bytes) {
  const auto offset = static_cast<off_t>(offset_of(address));
  check(
      fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, static_cast<off_t>(bytes)) == 0,
      "simulated ACL: fallocate");
  taken_.erase(offset_of(address));
  used -= bytes;
}

uintptr_t Arena::import(int file, size_t offset, size_t bytes) {
  const uintptr_t address = find_gap(bytes);
  if (!address)
    return 0;
  const auto at = static_cast<off_t>(offset);
  const int shared = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
  const int closed = openings_ ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* const addresses = addresses_ + offset_of(address);
  check(mmap(addresses, bytes, closed, shared, file, at) == addresses, "simulated ACL: mmap");
  char* const contents = translate(address);
  check(mmap(contents, bytes, PROT_READ | PROT_WRITE, shared, file, at) == contents, "simulated ACL: mmap");
  return address;
}

void Arena::close_import(uintptr_t address, size_t bytes) {
  const size_t offset = offset_of(address);
  const auto at = static_cast<off_t>(offset);
  const int shared = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
  const int closed = openings_ ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* const addresses = addresses_ + offset;
  check(mmap(addresses, bytes, closed, shared, file_, at) == addresses, "simulated ACL: mmap");
  char* const contents = contents_ + offset;
  check(mmap(contents, bytes, PROT_READ | PROT_WRITE, shared, file_, at) == contents, "simulated ACL: mmap");
  taken_.erase(offset);
}

bool Arena::holds(uintptr_t address) const {
  return address >= reinterpret_cast<uintptr_t>(addresses_) && offset_of(address) < span_;
}

size_t Arena::offset_of(uintptr_t address) const {
  return address - reinterpret_cast<uintptr_t>(addresses_);
}

char* Arena::translate(uintptr_t address) const {
  return contents_ + offset_of(address);
}

void Arena::open() {
  if (openings_++ == 0)
    check(mprotect(addresses_, span_, PROT_READ | PROT_WRITE) == 0, "simulated ACL: mprotect");
}

void Arena::close() {
  if (--openings_ == 0)
    check(mprotect(addresses_, span_, PROT_NONE) == 0, "simulated ACL: mprotect");
}

} // namespace simulated_ascend
