// SPDX-License-Identifier: Apache-2.0
// Collectives for the simulated vendor libraries: slow, simple, and strict about arguments.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "sockets.h"

namespace simulated {

enum class Type { Int8, UInt8, Int16, Int32, UInt32, Int64, UInt64, Half, BFloat16, Float, Double, UInt16 };
enum class Op { Sum, Prod, Max, Min, Avg, Premul };

size_t size_of(Type type);

// The ranks of a communicator, which share a file, or are on several hosts and have connections.
class Group {
 public:
  Group(const std::string& path, int size, int rank);
  ~Group();

  int rank() const {
    return rank_;
  }
  int size() const {
    return size_;
  }
  // `mine` of every rank, in order; nothing of use once the group has failed.
  std::vector<std::vector<char>> exchange(const void* mine, size_t bytes);
  // Messages to ranks and from ranks, one of which may be this one, at once; within a host only.
  struct Message {
    const char* function;
    bool sends;
    int peer;
    char* data;
    size_t bytes;
    size_t done = 0;
  };
  void transfer(std::vector<Message> messages);

  // Ends what waits for other ranks. Whether one of them is lost.
  void abort();
  bool failed() const;

  // Calls run in the order in which they were made, whatever their streams, as the libraries have it. A call that
  // does not run ends its turn all the same.
  uint64_t take_ticket();
  void wait_for_turn(uint64_t ticket);
  void end_turn(uint64_t ticket);
  bool has_turns();

 private:
  template <class Done>
  bool wait_for(double seconds, Done done);
  bool barrier();
  bool put_part(Message& message);
  bool get_part(Message& message);
  char* slot(int rank);
  char* box(int from, int to);
  std::unique_ptr<Sockets> sockets_;
  char* memory_ = nullptr;
  size_t length_ = 0;
  int size_;
  int rank_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t tickets_ = 0;
  uint64_t turn_ = 0;
  std::set<uint64_t> ended_;
  std::atomic<bool> failed_{false};
};

// A name for a group that nobody else has.
std::string new_name();

std::vector<char> reduced(const std::vector<std::vector<char>>& inputs, size_t count, Type type, Op op, double factor);

} // namespace simulated
