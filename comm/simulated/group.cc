// SPDX-License-Identifier: Apache-2.0
#include "group.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "platform.h"

namespace simulated {

namespace {

constexpr size_t kSlot = 16 << 20; // bytes a rank can contribute; the file is sparse
constexpr size_t kBox = 4 << 20;

struct Header {
  std::atomic<int> arrived;
  std::atomic<int> round;
  std::atomic<int> attached;
};

struct Box {
  std::atomic<uint64_t> state; // 0 empty, 1 full
  uint64_t bytes;
};

float half_to_float(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return static_cast<float>(value);
}

double load(const char* data, size_t i, Type type) {
  const auto as = [&](auto value) {
    std::memcpy(&value, data + i * sizeof(value), sizeof(value));
    return static_cast<double>(value);
  };
  switch (type) {
    case Type::Int8:
      return as(int8_t());
    case Type::UInt8:
      return as(uint8_t());
    case Type::Int16:
      return as(int16_t());
    case Type::UInt16:
      return as(uint16_t());
    case Type::Int32:
      return as(int32_t());
    case Type::UInt32:
      return as(uint32_t());
    case Type::Int64:
      return as(int64_t());
    case Type::UInt64:
      return as(uint64_t());
    case Type::Float:
      return as(float());
    case Type::Double:
      return as(double());
    case Type::Half: {
      uint16_t bits;
      std::memcpy(&bits, data + i * 2, 2);
      return half_to_float(bits);
    }
    case Type::BFloat16: {
      uint16_t bits;
      std::memcpy(&bits, data + i * 2, 2);
      const uint32_t wide = static_cast<uint32_t>(bits) << 16;
      float value;
      std::memcpy(&value, &wide, 4);
      return value;
    }
  }
  return 0;
}

void store(char* data, size_t i, Type type, double value) {
  const auto as = [&](auto narrow) {
    narrow = static_cast<decltype(narrow)>(value);
    std::memcpy(data + i * sizeof(narrow), &narrow, sizeof(narrow));
  };
  switch (type) {
    case Type::Int8:
      return as(int8_t());
    case Type::UInt8:
      return as(uint8_t());
    case Type::Int16:
      return as(int16_t());
    case Type::UInt16:
      return as(uint16_t());
    case Type::Int32:
      return as(int32_t());
    case Type::UInt32:
      return as(uint32_t());
    case Type::Int64:
      return as(int64_t());
    case Type::UInt64:
      return as(uint64_t());
    case Type::Float:
      return as(float());
    case Type::Double:
      return as(double());
    case Type::Half: {
      const auto narrow = static_cast<_Float16>(value);
      std::memcpy(data + i * 2, &narrow, 2);
      return;
    }
    case Type::BFloat16: {
      const auto single = static_cast<float>(value);
      uint32_t bits;
      std::memcpy(&bits, &single, 4);
      bits += 0x7fff + ((bits >> 16) & 1); // round to nearest, ties to even
      const auto narrow = static_cast<uint16_t>(bits >> 16);
      std::memcpy(data + i * 2, &narrow, 2);
      return;
    }
  }
}

Header* header(char* memory) {
  return reinterpret_cast<Header*>(memory);
}

} // namespace

size_t size_of(Type type) {
  switch (type) {
    case Type::Int8:
    case Type::UInt8:
      return 1;
    case Type::Int16:
    case Type::UInt16:
    case Type::Half:
    case Type::BFloat16:
      return 2;
    case Type::Int32:
    case Type::UInt32:
    case Type::Float:
      return 4;
    default:
      return 8;
  }
}

std::string new_name() {
  const char* address = std::getenv("SIMULATED_CCL_ADDRESS");
  if (address != nullptr) {
    return Sockets::listen(address);
  }
  static std::atomic<int> counter{0};
  char name[64];
  std::snprintf(name, sizeof(name), "/simulated-ccl-%d-%d", getpid(), counter++);
  return name;
}

Group::Group(const std::string& path, int size, int rank) : size_(size), rank_(rank) {
  if (Sockets::is_name(path)) {
    sockets_ = std::make_unique<Sockets>(path, size, rank);
    return;
  }
  length_ = 4096 + static_cast<size_t>(size) * kSlot + static_cast<size_t>(size) * size * kBox;
  const int file = shm_open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(length_)) != 0) {
    std::perror("simulated library");
    std::abort();
  }
  memory_ = static_cast<char*>(mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  close(file);
  header(memory_)->attached.fetch_add(1);
  wait_for(seconds_to_connect(), [&] { return header(memory_)->attached.load() >= size_; });
  if (rank == 0) {
    shm_unlink(path.c_str());
  }
}

Group::~Group() {
  if (memory_ != nullptr) {
    munmap(memory_, length_);
  }
}

template <class Done>
bool Group::wait_for(double seconds, Done done) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (int turns = 0; !done(); ++turns) {
    if (failed_) {
      return false;
    }
    if (std::chrono::steady_clock::now() > until) {
      nobody_came();
      abort();
      return false;
    }
    turns < 1000 ? sched_yield() : usleep(50);
  }
  return true;
}

void Group::abort() {
  if (sockets_ != nullptr) {
    sockets_->abort();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  failed_ = true;
  changed_.notify_all();
}

bool Group::failed() const {
  return failed_ || (sockets_ != nullptr && sockets_->failed());
}

char* Group::slot(int rank) {
  return memory_ + 4096 + static_cast<size_t>(rank) * kSlot;
}

char* Group::box(int from, int to) {
  return memory_ + 4096 + static_cast<size_t>(size_) * kSlot + static_cast<size_t>(from * size_ + to) * kBox;
}

bool Group::barrier() {
  const int round = header(memory_)->round.load();
  if (header(memory_)->arrived.fetch_add(1) + 1 == size_) {
    header(memory_)->arrived.store(0);
    header(memory_)->round.fetch_add(1);
    return true;
  }
  return wait_for(seconds_to_wait(), [&] { return header(memory_)->round.load() != round; });
}

std::vector<std::vector<char>> Group::exchange(const void* mine, size_t bytes) {
  if (sockets_ != nullptr) {
    return sockets_->exchange(mine, bytes);
  }
  std::vector<std::vector<char>> all(size_, std::vector<char>(bytes));
  for (size_t begin = 0; begin < bytes; begin += kSlot) {
    const size_t part = std::min(bytes - begin, kSlot);
    std::memcpy(slot(rank_), static_cast<const char*>(mine) + begin, part);
    if (!barrier()) {
      return all;
    }
    for (int rank = 0; rank < size_; ++rank) {
      std::memcpy(all[rank].data() + begin, slot(rank), part);
    }
    if (!barrier()) {
      return all;
    }
  }
  return all;
}

bool Group::put_part(Message& message) {
  auto* place = reinterpret_cast<Box*>(box(rank_, message.peer));
  if (place->state.load() != 0) {
    return false;
  }
  const size_t part = std::min(message.bytes - message.done, kBox - sizeof(Box));
  place->bytes = message.bytes;
  std::memcpy(reinterpret_cast<char*>(place + 1), message.data + message.done, part);
  place->state.store(1);
  message.done += part;
  return true;
}

bool Group::get_part(Message& message) {
  auto* place = reinterpret_cast<Box*>(box(message.peer, rank_));
  if (place->state.load() != 1) {
    return false;
  }
  if (place->bytes != message.bytes) {
    complain(
        message.function,
        "the message has " + std::to_string(place->bytes) + " bytes, not " + std::to_string(message.bytes));
    abort();
    return false;
  }
  const size_t part = std::min(message.bytes - message.done, kBox - sizeof(Box));
  std::memcpy(message.data + message.done, reinterpret_cast<const char*>(place + 1), part);
  place->state.store(0);
  message.done += part;
  return true;
}

void Group::transfer(std::vector<Message> messages) {
  if (sockets_ != nullptr) {
    complain("Send or Recv", "messages between two ranks are not simulated over several hosts");
    return;
  }
  wait_for(seconds_to_wait(), [&] {
    bool left = false;
    std::set<std::pair<bool, int>> busy; // a message to a rank, or from it, waits for those before it
    for (Message& message : messages) {
      if (message.done == message.bytes || !busy.insert({message.sends, message.peer}).second) {
        continue;
      }
      message.sends ? put_part(message) : get_part(message);
      left = left || message.done < message.bytes;
    }
    return !left &&
        std::all_of(messages.begin(), messages.end(), [](const Message& each) { return each.done == each.bytes; });
  });
}

uint64_t Group::take_ticket() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return tickets_++;
}

void Group::wait_for_turn(uint64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return turn_ == ticket || failed_; });
}

void Group::end_turn(uint64_t ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_.insert(ticket);
  while (ended_.erase(turn_) != 0) {
    ++turn_;
  }
  changed_.notify_all();
}

bool Group::has_turns() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return turn_ != tickets_;
}

std::vector<char> reduced(const std::vector<std::vector<char>>& inputs, size_t count, Type type, Op op, double factor) {
  std::vector<char> out(count * size_of(type));
  for (size_t i = 0; i < count; ++i) {
    double total = load(inputs[0].data(), i, type) * (op == Op::Premul ? factor : 1);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const double next = load(inputs[rank].data(), i, type) * (op == Op::Premul ? factor : 1);
      switch (op) {
        case Op::Prod:
          total *= next;
          break;
        case Op::Max:
          total = next > total ? next : total;
          break;
        case Op::Min:
          total = next < total ? next : total;
          break;
        default:
          total += next;
      }
    }
    store(out.data(), i, type, op == Op::Avg ? total / static_cast<double>(inputs.size()) : total);
  }
  return out;
}

} // namespace simulated
