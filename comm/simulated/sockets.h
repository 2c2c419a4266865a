// SPDX-License-Identifier: Apache-2.0
// Ranks on several hosts share no memory: each has a connection to the first.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace simulated {

class Sockets {
 public:
  // Listens, and returns the name that the other ranks connect to. The variable SIMULATED_CCL_ADDRESS has the
  // IPv4 address under which they see this host.
  static std::string listen(const char* address);
  static bool is_name(const std::string& name);

  Sockets(const std::string& name, int size, int rank);
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  // `mine` of every rank, in order; nothing of use once it has failed.
  std::vector<std::vector<char>> exchange(const void* mine, size_t bytes);
  // Ends what is waiting.
  void abort();
  bool failed() const {
    return failed_;
  }

 private:
  bool send(int socket, const void* data, size_t bytes);
  bool receive(int socket, void* data, size_t bytes);
  int size_;
  int rank_;
  std::vector<int> sockets_; // by rank; of the others only that to the first
  std::atomic<bool> failed_{false};
};

} // namespace simulated
