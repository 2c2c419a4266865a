// SPDX-License-Identifier: Apache-2.0
// The interface of FlagCX. With -DSIMULATED_OLD_FLAGCX its id is allocated by the library, as older releases do.
#include <cstdlib>
#include <cstring>

#include "calls.h"

using simulated::Comm;
using simulated::Op;
using simulated::Type;

namespace {

constexpr simulated::Codes kCodes;

struct UniqueId {
  uint64_t magic;
  char name[248];
};

struct Stream {
  void* base;
};

std::optional<Type> type_of(int code) {
  static const Type types[] = {
      Type::Int8,
      Type::UInt8,
      Type::Int32,
      Type::UInt32,
      Type::Int64,
      Type::UInt64,
      Type::Half,
      Type::Float,
      Type::Double,
      Type::BFloat16};
  return code >= 0 && code < 10 ? std::optional<Type>(types[code]) : std::nullopt;
}

std::optional<Op> op_of(int code) {
  static const Op ops[] = {Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg};
  return code >= 0 && code < 5 ? std::optional<Op>(ops[code]) : std::nullopt;
}

bool freed(Comm* comm, const char* function) {
  if (comm == nullptr || comm->magic != Comm::kAlive) {
    simulated::complain(function, "freed twice");
    return false;
  }
  comm->magic = 0;
  comm->group.reset();
  return true;
}

} // namespace

extern "C" {

int flagcxGetUniqueId(UniqueId* given) {
  UniqueId id{};
  id.magic = 7;
  std::strncpy(id.name, simulated::new_name().c_str(), sizeof(id.name) - 1);
#ifdef SIMULATED_OLD_FLAGCX
  auto* made = static_cast<UniqueId*>(std::calloc(1, sizeof(UniqueId)));
  *made = id;
  std::memcpy(given, &made, sizeof(made));
#else
  *given = id;
#endif
  return 0;
}
const char* flagcxGetLastError(Comm* /*comm*/) {
  return "Not implemented.";
}
int flagcxCommInitRank(Comm** comm, int size, const UniqueId* id, int rank) {
  *comm = new Comm;
  (*comm)->group = std::make_shared<simulated::Group>(id->name, size, rank);
  return 0;
}
int flagcxCommDestroy(Comm* comm) {
  return freed(comm, "CommDestroy") ? 0 : kCodes.invalid_argument;
}
int flagcxCommAbort(Comm* comm) {
  return freed(comm, "CommAbort") ? 0 : kCodes.invalid_argument;
}
int flagcxCommGetAsyncError(Comm* /*comm*/, int* /*error*/) {
  return 9; // not supported, as in heterogeneous groups
}
int flagcxAllReduce(const void* in, void* out, size_t count, int type, int op, Comm* comm, Stream* stream) {
  return all_reduce({"AllReduce", comm, stream->base, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int flagcxReduce(const void* in, void* out, size_t count, int type, int op, int root, Comm* comm, Stream* stream) {
  return reduce({"Reduce", comm, stream->base, in, out, count, type_of(type), op_of(op), root}, kCodes);
}
int flagcxBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* comm, Stream* stream) {
  return broadcast({"Broadcast", comm, stream->base, in, out, count, type_of(type), Op::Sum, root}, kCodes);
}
int flagcxAllGather(const void* in, void* out, size_t count, int type, Comm* comm, Stream* stream) {
  return all_gather({"AllGather", comm, stream->base, in, out, count, type_of(type), Op::Sum, 0}, kCodes);
}
int flagcxReduceScatter(const void* in, void* out, size_t count, int type, int op, Comm* comm, Stream* stream) {
  return reduce_scatter({"ReduceScatter", comm, stream->base, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int flagcxSend(const void* in, size_t count, int type, int peer, Comm* comm, Stream* stream) {
  return simulated::send({"Send", comm, stream->base, in, nullptr, count, type_of(type), Op::Sum, peer}, kCodes);
}
int flagcxRecv(void* out, size_t count, int type, int peer, Comm* comm, Stream* stream) {
  return simulated::recv({"Recv", comm, stream->base, nullptr, out, count, type_of(type), Op::Sum, peer}, kCodes);
}
int flagcxGroupStart(Comm* comm) {
  return comm != nullptr && comm->magic == Comm::kAlive ? simulated::group_start(kCodes) : kCodes.invalid_argument;
}
int flagcxGroupEnd(Comm* comm) {
  return comm != nullptr && comm->magic == Comm::kAlive ? simulated::group_end(kCodes) : kCodes.invalid_argument;
}

} // extern "C"
