// SPDX-License-Identifier: Apache-2.0
#include "sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace simulated {

namespace {

constexpr char kPrefix[] = "tcp:";
constexpr size_t kPrefixLength = sizeof(kPrefix) - 1;

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

// "tcp:10.0.0.1:4711:5", where the last number is the descriptor of the first rank.
sockaddr_in address_in(const std::string& name, int* listener) {
  char host[64] = {};
  int port = 0;
  if (std::sscanf(name.c_str() + kPrefixLength, "%63[0-9.]:%d:%d", host, &port, listener) != 3) {
    give_up("simulated library: a name");
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

} // namespace

std::string Sockets::listen(const char* address) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof(any);
  if (bind(listener, reinterpret_cast<sockaddr*>(&any), length) != 0 || ::listen(listener, 64) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&any), &length) != 0) {
    give_up("simulated library: listen");
  }
  return std::string(kPrefix) + address + ":" + std::to_string(ntohs(any.sin_port)) + ":" + std::to_string(listener);
}

bool Sockets::is_name(const std::string& name) {
  return name.compare(0, kPrefixLength, kPrefix) == 0;
}

Sockets::Sockets(const std::string& name, int size, int rank) : size_(size), rank_(rank), sockets_(size, -1) {
  int listener = -1;
  const sockaddr_in address = address_in(name, &listener);
  if (rank != 0) {
    sockets_[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(sockets_[0], reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      give_up("simulated library: connect");
    }
    send(sockets_[0], &rank, sizeof(rank));
    return;
  }
  for (int others = 1; others < size; ++others) {
    const int next = accept(listener, nullptr, nullptr);
    int who = 0;
    if (next < 0 || !receive(next, &who, sizeof(who)) || who <= 0 || who >= size) {
      give_up("simulated library: accept");
    }
    sockets_[who] = next;
  }
  close(listener);
}

Sockets::~Sockets() {
  for (const int each : sockets_) {
    if (each >= 0) {
      close(each);
    }
  }
}

bool Sockets::send(int socket, const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0 && !failed_) {
    const ssize_t done = ::send(socket, from, bytes, MSG_NOSIGNAL);
    if (done <= 0) {
      failed_ = true;
      break;
    }
    from += done;
    bytes -= static_cast<size_t>(done);
  }
  return !failed_;
}

bool Sockets::receive(int socket, void* data, size_t bytes) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0 && !failed_) {
    const ssize_t done = recv(socket, to, bytes, 0);
    if (done <= 0) {
      failed_ = true;
      break;
    }
    to += done;
    bytes -= static_cast<size_t>(done);
  }
  return !failed_;
}

std::vector<std::vector<char>> Sockets::exchange(const void* mine, size_t bytes) {
  const auto* first = static_cast<const char*>(mine);
  std::vector<std::vector<char>> all(size_, std::vector<char>(first, first + bytes));
  if (rank_ != 0) {
    send(sockets_[0], mine, bytes);
    for (int rank = 0; rank < size_; ++rank) {
      receive(sockets_[0], all[rank].data(), bytes);
    }
    return all;
  }
  for (int rank = 1; rank < size_; ++rank) {
    receive(sockets_[rank], all[rank].data(), bytes);
  }
  for (int rank = 1; rank < size_; ++rank) {
    for (const auto& part : all) {
      send(sockets_[rank], part.data(), bytes);
    }
  }
  return all;
}

void Sockets::abort() {
  failed_ = true;
  for (const int each : sockets_) {
    if (each >= 0) {
      shutdown(each, SHUT_RDWR);
    }
  }
}

} // namespace simulated
