// SPDX-License-Identifier: Apache-2.0
// The interface of FlagCX. With -DSIMULATED_OLD_FLAGCX its id is allocated by the library, as older releases do. On an
// Ascend it has what FlagCX's adaptor for HCCL has: no average, no unsigned numbers of 32 and 64 bits, which it takes
// for others, no abort, and no transfer outside of a group.
#include <cstdlib>
#include <cstring>

#include "calls.h"

using simulated::Comm;
using simulated::Op;
using simulated::Type;

namespace {

constexpr int kNotSupported = 9;
constexpr simulated::Codes kCodes{0, 4, 5, 1};

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
  if (code < 0 || code >= 10 || (simulated::is_ascend() && (code == 3 || code == 5))) {
    return std::nullopt;
  }
  return types[code];
}

std::optional<Op> op_of(int code) {
  static const Op ops[] = {Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg};
  return code >= 0 && code < (simulated::is_ascend() ? 4 : 5) ? std::optional<Op>(ops[code]) : std::nullopt;
}

// What HCCL refuses to reduce, FlagCX hands on.
int reduces(const char* function, int type, int op) {
  const auto known = type_of(type);
  const bool is_wide = known == Type::Double && !simulated::is_950();
  if (simulated::is_ascend() && (known == Type::UInt8 || is_wide || (known == Type::BFloat16 && op == 1))) {
    simulated::complain(
        function, "no operation " + std::to_string(op) + " of type " + std::to_string(type), kNotSupported);
    return kNotSupported;
  }
  return 0;
}

// Outside of a group the adaptor keeps a transfer, and the next group drops it.
bool is_dropped(const char* function) {
  if (!simulated::is_ascend() || simulated::in_group()) {
    return false;
  }
  simulated::complain(function, "outside of a group nothing is sent or received");
  return true;
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

int flagcxGetUniqueId(UniqueId* given) {
  if (!simulated::begin(__func__)) {
    return 1;
  }
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
  if (!simulated::begin(__func__)) {
    return 1;
  }
  return simulated::connect(__func__, id->name, size, rank, kCodes, comm);
}
int flagcxCommDestroy(Comm* comm) {
  if (!simulated::begin(__func__)) {
    return 1;
  }
  return simulated::end(__func__, comm, kCodes) ? 0 : kCodes.invalid_argument;
}
int flagcxCommAbort(Comm* comm) {
  if (simulated::is_ascend()) {
    return kNotSupported;
  }
  return simulated::end(__func__, comm, kCodes) ? 0 : kCodes.invalid_argument;
}
int flagcxCommGetAsyncError(Comm* /*comm*/, int* /*error*/) {
  return kNotSupported; // not supported, as in heterogeneous groups
}
int flagcxAllReduce(const void* in, void* out, size_t count, int type, int op, Comm* comm, Stream* stream) {
  if (const int code = reduces(__func__, type, op)) {
    return code;
  }
  return all_reduce({__func__, comm, stream->base, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int flagcxReduce(const void* in, void* out, size_t count, int type, int op, int root, Comm* comm, Stream* stream) {
  if (const int code = reduces(__func__, type, op)) {
    return code;
  }
  return reduce({__func__, comm, stream->base, in, out, count, type_of(type), op_of(op), root}, kCodes);
}
int flagcxBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* comm, Stream* stream) {
  return broadcast({__func__, comm, stream->base, in, out, count, type_of(type), Op::Sum, root}, kCodes);
}
int flagcxAllGather(const void* in, void* out, size_t count, int type, Comm* comm, Stream* stream) {
  return all_gather({__func__, comm, stream->base, in, out, count, type_of(type), Op::Sum, 0}, kCodes);
}
int flagcxReduceScatter(const void* in, void* out, size_t count, int type, int op, Comm* comm, Stream* stream) {
  if (const int code = reduces(__func__, type, op)) {
    return code;
  }
  return reduce_scatter({__func__, comm, stream->base, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int flagcxSend(const void* in, size_t count, int type, int peer, Comm* comm, Stream* stream) {
  if (is_dropped(__func__)) {
    return 0;
  }
  return simulated::send({__func__, comm, stream->base, in, nullptr, count, type_of(type), Op::Sum, peer}, kCodes);
}
int flagcxRecv(void* out, size_t count, int type, int peer, Comm* comm, Stream* stream) {
  if (is_dropped(__func__)) {
    return 0;
  }
  return simulated::recv({__func__, comm, stream->base, nullptr, out, count, type_of(type), Op::Sum, peer}, kCodes);
}
int flagcxGroupStart(Comm* comm) {
  return simulated::is_alive(comm) ? simulated::group_start(kCodes) : kCodes.invalid_argument;
}
int flagcxGroupEnd(Comm* comm) {
  return simulated::is_alive(comm) ? simulated::group_end(kCodes) : kCodes.invalid_argument;
}

} // extern "C"
#pragma GCC visibility pop
