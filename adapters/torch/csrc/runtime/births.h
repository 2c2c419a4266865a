// SPDX-License-Identifier: Apache-2.0
// When the memory of flagos storages became theirs, in calls that automatic graphs saw: what is younger than a run was
// made in it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace flagos {

class Births {
 public:
  static Births& instance() {
    static auto* births = new Births(); // never destroyed: storages may be made after static destruction
    return *births;
  }
  // To be called for each call; `now` is its number.
  void tick(uint64_t now) {
    now_.store(now, std::memory_order_relaxed);
  }
  void note(const void* address) {
    Birth& birth = at(address);
    birth.address.store(address, std::memory_order_relaxed);
    birth.time.store(now_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    birth.life.store(1 + lives_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
  }
  // 0 for memory of which nothing is known: others have come to its place, or it is older than this table. Threads may
  // get a wrong answer, which costs a graph and no result.
  uint64_t of(const void* address) const {
    const Birth& birth = at(address);
    return birth.address.load(std::memory_order_relaxed) == address ? birth.time.load(std::memory_order_relaxed) : 0;
  }
  // A number that no other tensor's memory has had at this address; 0 likewise.
  uint64_t life_of(const void* address) const {
    const Birth& birth = at(address);
    return birth.address.load(std::memory_order_relaxed) == address ? birth.life.load(std::memory_order_relaxed) : 0;
  }

 private:
  struct Birth {
    std::atomic<const void*> address{nullptr};
    std::atomic<uint64_t> time{0};
    std::atomic<uint64_t> life{0};
  };
  static constexpr size_t kPlaces = size_t(1) << 15;

  static size_t place(const void* address) {
    return (reinterpret_cast<uint64_t>(address) * 0x9E3779B97F4A7C15ULL) >> 49U;
  }
  Birth& at(const void* address) {
    return births_[place(address)];
  }
  const Birth& at(const void* address) const {
    return births_[place(address)];
  }

  std::array<Birth, kPlaces> births_;
  std::atomic<uint64_t> now_{0};
  std::atomic<uint64_t> lives_{0};
};

} // namespace flagos
