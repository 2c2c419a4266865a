// SPDX-License-Identifier: Apache-2.0
// Collectives over host memory, for the simulated vendor libraries: slow, simple, and strict about arguments.
//
// Work is queued on streams of the flagos host vendor through its C table, so that it is as asynchronous as on a
// device; without the table it runs at once.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
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
  void barrier();
  // `mine` of every rank, in order.
  std::vector<std::vector<char>> exchange(const void* mine, size_t bytes);
  // A message to a rank, which may be this one, and one from a rank; within a host only.
  void put(int to, const void* data, size_t bytes);
  void get(int from, void* data, size_t bytes);

  // Ends what waits for ranks on other hosts. Whether one of them is lost.
  void abort();
  bool failed() const;

  // Calls run in the order in which they were made, whatever their streams, as the libraries have it.
  uint64_t take_ticket();
  void wait_for_turn(uint64_t ticket);
  void end_turn();

 private:
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
};

// A name for a group that nobody else has.
std::string new_name();

std::vector<char> reduced(const std::vector<std::vector<char>>& inputs, size_t count, Type type, Op op, double factor);

// Runs `work` when the stream got there. False when there is no such stream.
bool queue(void* stream, std::function<void()> work);
bool is_stream(void* stream);

// Says on standard error what is wrong with a call.
void complain(const char* function, const std::string& what);

} // namespace simulated

// Tells the library of the host vendor's streams: `api` is a `const FlagosApi*`. Returns how often it was misused so
// far.
extern "C" int simulated_use_core(const void* api);
extern "C" int simulated_misuses(void);
