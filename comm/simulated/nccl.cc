// SPDX-License-Identifier: Apache-2.0
// The interface of NCCL, or with -DSIMULATED_MCCL that of MetaX's library.
#include <cstring>

#include "calls.h"

using simulated::Call;
using simulated::Comm;
using simulated::Op;
using simulated::Type;

#ifdef SIMULATED_MCCL
#define NAME(name) mccl##name
#else
#define NAME(name) nccl##name
#endif

namespace {

constexpr simulated::Codes kCodes;
constexpr int kFirstMadeOp = 5;

struct UniqueId {
  char name[128];
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
  static const Op ops[] = {Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg, Op::Premul};
  return code >= 0 && code <= kFirstMadeOp ? std::optional<Op>(ops[code]) : std::nullopt;
}

} // namespace

extern "C" {

int NAME(GetVersion)(int* version) {
  *version = 22809;
  return 0;
}
const char* NAME(GetErrorString)(int code) {
  return code == 0 ? "no error" : "invalid argument";
}
const char* NAME(GetLastError)(Comm* /*comm*/) {
  return "said by the simulated library";
}
int NAME(GetUniqueId)(UniqueId* id) {
  std::memset(id, 0, sizeof(*id));
  std::strncpy(id->name, simulated::new_name().c_str(), sizeof(id->name) - 1);
  return 0;
}
int NAME(CommInitRank)(Comm** comm, int size, UniqueId id, int rank) {
  return simulated::connect("CommInitRank", id.name, size, rank, kCodes, comm);
}
int NAME(CommDestroy)(Comm* comm) {
  return simulated::end("CommDestroy", comm, kCodes) ? 0 : kCodes.invalid_argument;
}
int NAME(CommAbort)(Comm* comm) {
  comm->aborted = true;
  comm->group->abort();
  return 0;
}
int NAME(CommGetAsyncError)(Comm* comm, int* error) {
  *error = comm->aborted || comm->group->failed() ? 6 : 0;
  return 0;
}
int NAME(AllReduce)(const void* in, void* out, size_t count, int type, int op, Comm* comm, void* stream) {
  return all_reduce({"AllReduce", comm, stream, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int NAME(Reduce)(const void* in, void* out, size_t count, int type, int op, int root, Comm* comm, void* stream) {
  return reduce({"Reduce", comm, stream, in, out, count, type_of(type), op_of(op), root}, kCodes);
}
int NAME(Broadcast)(const void* in, void* out, size_t count, int type, int root, Comm* comm, void* stream) {
  return broadcast({"Broadcast", comm, stream, in, out, count, type_of(type), Op::Sum, root}, kCodes);
}
int NAME(AllGather)(const void* in, void* out, size_t count, int type, Comm* comm, void* stream) {
  return all_gather({"AllGather", comm, stream, in, out, count, type_of(type), Op::Sum, 0}, kCodes);
}
int NAME(ReduceScatter)(const void* in, void* out, size_t count, int type, int op, Comm* comm, void* stream) {
  return reduce_scatter({"ReduceScatter", comm, stream, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int NAME(Send)(const void* in, size_t count, int type, int peer, Comm* comm, void* stream) {
  return simulated::send({"Send", comm, stream, in, nullptr, count, type_of(type), Op::Sum, peer}, kCodes);
}
int NAME(Recv)(void* out, size_t count, int type, int peer, Comm* comm, void* stream) {
  return simulated::recv({"Recv", comm, stream, nullptr, out, count, type_of(type), Op::Sum, peer}, kCodes);
}
int NAME(GroupStart)(void) {
  return simulated::group_start(kCodes);
}
int NAME(GroupEnd)(void) {
  return simulated::group_end(kCodes);
}
int NAME(RedOpCreatePreMulSum)(int* op, const void* scalar, int type, int residence, Comm* comm) {
  if (residence != 1) {
    simulated::complain("RedOpCreatePreMulSum", "the factor is not in host memory");
    return kCodes.invalid_argument;
  }
  if (type_of(type) == Type::Float) {
    float value;
    std::memcpy(&value, scalar, sizeof(value));
    comm->factor = value;
  } else if (type_of(type) == Type::Double) {
    std::memcpy(&comm->factor, scalar, sizeof(double));
  } else if (type_of(type) == Type::BFloat16) {
    uint16_t bits;
    std::memcpy(&bits, scalar, 2);
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    comm->factor = value;
  } else {
    simulated::complain("RedOpCreatePreMulSum", "a type without a factor");
    return kCodes.invalid_argument;
  }
  *op = kFirstMadeOp;
  return 0;
}
int NAME(RedOpDestroy)(int op, Comm* /*comm*/) {
  return op == kFirstMadeOp ? 0 : kCodes.invalid_argument;
}

} // extern "C"
