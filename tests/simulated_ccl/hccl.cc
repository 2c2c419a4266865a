// SPDX-License-Identifier: Apache-2.0
// The interface of HCCL.
#include <cstring>

#include "calls.h"

using simulated::Comm;
using simulated::Op;
using simulated::Type;

namespace {

constexpr simulated::Codes kCodes{0, 1, 1};

struct RootInfo {
  char name[4108];
};

struct Item {
  int direction;
  void* buffer;
  uint64_t count;
  int type;
  uint32_t peer;
};

std::optional<Type> type_of(int code) {
  static const Type types[] = {
      Type::Int8,
      Type::Int16,
      Type::Int32,
      Type::Half,
      Type::Float,
      Type::Int64,
      Type::UInt64,
      Type::UInt8,
      Type::UInt16,
      Type::UInt32,
      Type::Double,
      Type::BFloat16};
  return code >= 0 && code < 12 ? std::optional<Type>(types[code]) : std::nullopt;
}

std::optional<Op> op_of(int code) {
  static const Op ops[] = {Op::Sum, Op::Prod, Op::Max, Op::Min};
  return code >= 0 && code < 4 ? std::optional<Op>(ops[code]) : std::nullopt;
}

} // namespace

extern "C" {

const char* HcclGetErrorString(int code) {
  return code == 0 ? "no error" : "parameter error";
}
int HcclGetRootInfo(RootInfo* info) {
  std::memset(info, 0, sizeof(*info));
  std::strncpy(info->name, simulated::new_name().c_str(), sizeof(info->name) - 1);
  return 0;
}
int HcclCommInitRootInfo(uint32_t size, const RootInfo* info, uint32_t rank, Comm** comm) {
  *comm = new Comm;
  (*comm)->group = std::make_shared<simulated::Group>(info->name, static_cast<int>(size), static_cast<int>(rank));
  return 0;
}
int HcclCommDestroy(Comm* comm) {
  if (comm == nullptr || comm->magic != Comm::kAlive) {
    simulated::complain("CommDestroy", "destroyed twice");
    return kCodes.invalid_argument;
  }
  comm->magic = 0;
  comm->group.reset();
  return 0;
}
int HcclGetCommAsyncError(Comm* /*comm*/, int* error) {
  *error = 0;
  return 0;
}
int HcclAllReduce(void* in, void* out, uint64_t count, int type, int op, Comm* comm, void* stream) {
  return all_reduce({"AllReduce", comm, stream, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int HcclReduce(void* in, void* out, uint64_t count, int type, int op, uint32_t root, Comm* comm, void* stream) {
  const int rank = static_cast<int>(root);
  return reduce({"Reduce", comm, stream, in, out, count, type_of(type), op_of(op), rank}, kCodes);
}
int HcclBroadcast(void* buffer, uint64_t count, int type, uint32_t root, Comm* comm, void* stream) {
  const int rank = static_cast<int>(root);
  return broadcast({"Broadcast", comm, stream, buffer, buffer, count, type_of(type), Op::Sum, rank}, kCodes);
}
int HcclAllGather(void* in, void* out, uint64_t count, int type, Comm* comm, void* stream) {
  return all_gather({"AllGather", comm, stream, in, out, count, type_of(type), Op::Sum, 0}, kCodes);
}
int HcclReduceScatter(void* in, void* out, uint64_t count, int type, int op, Comm* comm, void* stream) {
  return reduce_scatter({"ReduceScatter", comm, stream, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int HcclSend(void* in, uint64_t count, int type, uint32_t peer, Comm* comm, void* stream) {
  const int rank = static_cast<int>(peer);
  return simulated::send({"Send", comm, stream, in, nullptr, count, type_of(type), Op::Sum, rank}, kCodes);
}
int HcclRecv(void* out, uint64_t count, int type, uint32_t peer, Comm* comm, void* stream) {
  const int rank = static_cast<int>(peer);
  return simulated::recv({"Recv", comm, stream, nullptr, out, count, type_of(type), Op::Sum, rank}, kCodes);
}
int HcclBatchSendRecv(Item* items, uint32_t count, Comm* comm, void* stream) {
  simulated::group_start(kCodes);
  int status = 0;
  for (uint32_t i = 0; i < count && status == 0; ++i) {
    status = items[i].direction == 0
        ? HcclSend(items[i].buffer, items[i].count, items[i].type, items[i].peer, comm, stream)
        : HcclRecv(items[i].buffer, items[i].count, items[i].type, items[i].peer, comm, stream);
  }
  const int ended = simulated::group_end(kCodes);
  return status != 0 ? status : ended;
}

} // extern "C"
