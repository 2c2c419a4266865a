// SPDX-License-Identifier: Apache-2.0
// A libmccl.so that forwards every call to NVIDIA's NCCL, whose interface MCCL has with another prefix. For tests,
// beside the forwarder of the runtime.
#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Result = int;
constexpr Result kInternalError = 3;

// The NCCL of this process: the one that torch has loaded, or the one that METAX_FORWARDER_NCCL names.
void* nccl() {
  static void* const library = [] {
    std::string loaded;
    dl_iterate_phdr(
        [](dl_phdr_info* found, size_t, void* path) {
          const bool is_it = std::strstr(found->dlpi_name, "libnccl.so") != nullptr;
          if (is_it) {
            *static_cast<std::string*>(path) = found->dlpi_name;
          }
          return is_it ? 1 : 0;
        },
        &loaded);
    const char* named = std::getenv("METAX_FORWARDER_NCCL");
    const char* path = !loaded.empty() ? loaded.c_str() : named != nullptr ? named : "libnccl.so.2";
    void* opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      std::fprintf(stderr, "libmccl.so, the forwarder: %s\n", dlerror());
    }
    return opened;
  }();
  return library;
}

template <class Function>
Function find(const char* name) {
  void* library = nccl();
  return library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

} // namespace

#define FORWARD(name, parameters, ...)                               \
  EXPORT Result mccl##name parameters {                              \
    using Target = Result(*) parameters;                             \
    static const auto target = find<Target>("nccl" #name);           \
    return target != nullptr ? target(__VA_ARGS__) : kInternalError; \
  }

struct UniqueId {
  char internal[128];
};
using Comm = void*;
using Stream = void*;

FORWARD(GetVersion, (int* version), version)
FORWARD(GetUniqueId, (UniqueId * id), id)
FORWARD(CommInitRank, (Comm * comm, int size, UniqueId id, int rank), comm, size, id, rank)
FORWARD(CommDestroy, (Comm comm), comm)
FORWARD(CommAbort, (Comm comm), comm)
FORWARD(CommGetAsyncError, (Comm comm, Result* error), comm, error)
FORWARD(CommCount, (Comm comm, int* count), comm, count)
FORWARD(CommUserRank, (Comm comm, int* rank), comm, rank)
FORWARD(
    RedOpCreatePreMulSum,
    (int* op, void* scalar, int type, int residence, Comm comm),
    op,
    scalar,
    type,
    residence,
    comm)
FORWARD(RedOpDestroy, (int op, Comm comm), op, comm)
FORWARD(
    AllReduce,
    (const void* send, void* recv, size_t count, int type, int op, Comm comm, Stream stream),
    send,
    recv,
    count,
    type,
    op,
    comm,
    stream)
FORWARD(
    Reduce,
    (const void* send, void* recv, size_t count, int type, int op, int root, Comm comm, Stream stream),
    send,
    recv,
    count,
    type,
    op,
    root,
    comm,
    stream)
FORWARD(
    Broadcast,
    (const void* send, void* recv, size_t count, int type, int root, Comm comm, Stream stream),
    send,
    recv,
    count,
    type,
    root,
    comm,
    stream)
FORWARD(
    AllGather,
    (const void* send, void* recv, size_t count, int type, Comm comm, Stream stream),
    send,
    recv,
    count,
    type,
    comm,
    stream)
FORWARD(
    ReduceScatter,
    (const void* send, void* recv, size_t count, int type, int op, Comm comm, Stream stream),
    send,
    recv,
    count,
    type,
    op,
    comm,
    stream)
FORWARD(
    Send,
    (const void* send, size_t count, int type, int peer, Comm comm, Stream stream),
    send,
    count,
    type,
    peer,
    comm,
    stream)
FORWARD(
    Recv,
    (void* recv, size_t count, int type, int peer, Comm comm, Stream stream),
    recv,
    count,
    type,
    peer,
    comm,
    stream)
FORWARD(GroupStart, ())
FORWARD(GroupEnd, ())

EXPORT const char* mcclGetErrorString(Result result) {
  static const auto function = find<const char* (*)(Result)>("ncclGetErrorString");
  return function != nullptr ? function(result) : "libnccl was not found: set METAX_FORWARDER_NCCL to its file";
}

EXPORT const char* mcclGetLastError(Comm comm) {
  static const auto function = find<const char* (*)(Comm)>("ncclGetLastError");
  return function != nullptr ? function(comm) : "";
}
