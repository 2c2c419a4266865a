// SPDX-License-Identifier: Apache-2.0
// The interface of HCCL.
#include <cstring>
#include <initializer_list>

#include "calls.h"

using simulated::Comm;
using simulated::Op;
using simulated::Type;

namespace {

constexpr int kParameter = 1;
constexpr int kPointer = 2;
constexpr int kNotSupported = 5;
constexpr int kTimeout = 9;
constexpr int kRuntime = 15;
constexpr simulated::Codes kCodes{0, kParameter, kParameter, kRuntime, kTimeout};

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

// What the vendor's table of reductions has.
bool reduces(Type type, Op op) {
  switch (type) {
    case Type::Int16:
    case Type::BFloat16:
      return op != Op::Prod;
    case Type::Int8:
    case Type::Int32:
    case Type::Int64:
    case Type::Half:
    case Type::Float:
      return true;
    case Type::UInt64:
    case Type::Double:
      return simulated::is_950();
    default:
      return false;
  }
}

int refuse(const char* function, int code, const std::string& what) {
  simulated::complain(function, what, code);
  return code;
}

// What HCCL itself looks at before it queues a call that is not empty.
int check(
    const char* function,
    const Comm* comm,
    std::initializer_list<const void*> buffers,
    int type,
    int op,
    bool is_reduction,
    void* stream) {
  if (comm == nullptr) {
    return refuse(function, kPointer, "the communicator is NULL");
  }
  if (simulated::is_ascend() && stream == nullptr) {
    return refuse(function, kPointer, "the stream is NULL");
  }
  const auto known = type_of(type);
  if (!known.has_value()) {
    return refuse(function, kNotSupported, "there is no type " + std::to_string(type));
  }
  if (is_reduction && !op_of(op).has_value()) {
    return refuse(function, kNotSupported, "there is no operation " + std::to_string(op));
  }
  if (is_reduction && !reduces(*known, *op_of(op))) {
    return refuse(function, kNotSupported, "no operation " + std::to_string(op) + " of type " + std::to_string(type));
  }
  for (const void* each : buffers) {
    if (each == nullptr) {
      return refuse(function, kPointer, "a buffer is NULL");
    }
    if (reinterpret_cast<uintptr_t>(each) % simulated::size_of(*known) != 0) {
      simulated::complain(function, "a buffer is not aligned to its type");
    }
  }
  return 0;
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* HcclGetErrorString(int code) {
  switch (code) {
    case 0:
      return "no error";
    case kParameter:
      return "parameter error";
    case kPointer:
      return "empty pointer";
    case kNotSupported:
      return "not support feature";
    case kTimeout:
      return "timeout";
    case kRuntime:
      return "call runtime api fail";
    default:
      return "unknow error";
  }
}
int HcclGetRootInfo(RootInfo* info) {
  if (!simulated::begin(__func__)) {
    return kRuntime;
  }
  if (info == nullptr) {
    return refuse(__func__, kPointer, "the information is NULL");
  }
  std::memset(info, 0, sizeof(*info));
  std::strncpy(info->name, simulated::new_name().c_str(), sizeof(info->name) - 1);
  return 0;
}
int HcclCommInitRootInfo(uint32_t size, const RootInfo* info, uint32_t rank, Comm** comm) {
  if (!simulated::begin(__func__)) {
    return kRuntime;
  }
  if (info == nullptr || comm == nullptr) {
    return refuse(__func__, kPointer, "the information or the output is NULL");
  }
  if (rank >= size) {
    return refuse(__func__, kParameter, "there is no rank " + std::to_string(rank) + " of " + std::to_string(size));
  }
  if (info->name[0] == 0 || std::memchr(info->name, 0, sizeof(info->name)) == nullptr) {
    return refuse(__func__, kParameter, "the information is not that of HcclGetRootInfo");
  }
  return simulated::connect(__func__, info->name, static_cast<int>(size), static_cast<int>(rank), kCodes, comm);
}
int HcclCommDestroy(Comm* comm) {
  if (!simulated::begin(__func__)) {
    return kRuntime;
  }
  if (comm == nullptr) {
    return refuse(__func__, kPointer, "the communicator is NULL");
  }
  return simulated::end(__func__, comm, kCodes) ? 0 : kCodes.invalid_argument;
}
int HcclGetCommAsyncError(Comm* comm, int* error) {
  if (comm == nullptr || error == nullptr) {
    return refuse(__func__, kPointer, "the communicator or the output is NULL");
  }
  if (!simulated::is_alive(comm)) {
    return refuse(__func__, kParameter, "the communicator is not alive");
  }
  // Only links to other hosts fail so. A rank that is gone is waited for.
  *error = 0;
  return 0;
}
int HcclAllReduce(void* in, void* out, uint64_t count, int type, int op, Comm* comm, void* stream) {
  const int code = count == 0 ? 0 : check(__func__, comm, {in, out}, type, op, true, stream);
  if (code != 0 || count == 0) {
    return code;
  }
  return all_reduce({__func__, comm, stream, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int HcclReduce(void* in, void* out, uint64_t count, int type, int op, uint32_t root, Comm* comm, void* stream) {
  const int code = count == 0 ? 0 : check(__func__, comm, {in, out}, type, op, true, stream);
  if (code != 0 || count == 0) {
    return code;
  }
  const int rank = static_cast<int>(root);
  return reduce({__func__, comm, stream, in, out, count, type_of(type), op_of(op), rank}, kCodes);
}
int HcclBroadcast(void* buffer, uint64_t count, int type, uint32_t root, Comm* comm, void* stream) {
  const int code = count == 0 ? 0 : check(__func__, comm, {buffer}, type, 0, false, stream);
  if (code != 0 || count == 0) {
    return code;
  }
  const int rank = static_cast<int>(root);
  return broadcast({__func__, comm, stream, buffer, buffer, count, type_of(type), Op::Sum, rank}, kCodes);
}
int HcclAllGather(void* in, void* out, uint64_t count, int type, Comm* comm, void* stream) {
  const int code = count == 0 ? 0 : check(__func__, comm, {in, out}, type, 0, false, stream);
  if (code != 0 || count == 0) {
    return code;
  }
  return all_gather({__func__, comm, stream, in, out, count, type_of(type), Op::Sum, 0}, kCodes);
}
int HcclReduceScatter(void* in, void* out, uint64_t count, int type, int op, Comm* comm, void* stream) {
  const int code = count == 0 ? 0 : check(__func__, comm, {in, out}, type, op, true, stream);
  if (code != 0 || count == 0) {
    return code;
  }
  return reduce_scatter({__func__, comm, stream, in, out, count, type_of(type), op_of(op), 0}, kCodes);
}
int HcclSend(void* in, uint64_t count, int type, uint32_t peer, Comm* comm, void* stream) {
  const int code = count == 0 ? 0 : check(__func__, comm, {in}, type, 0, false, stream);
  if (code != 0 || count == 0) {
    return code;
  }
  const int rank = static_cast<int>(peer);
  return simulated::send({__func__, comm, stream, in, nullptr, count, type_of(type), Op::Sum, rank}, kCodes);
}
int HcclRecv(void* out, uint64_t count, int type, uint32_t peer, Comm* comm, void* stream) {
  const int code = count == 0 ? 0 : check(__func__, comm, {out}, type, 0, false, stream);
  if (code != 0 || count == 0) {
    return code;
  }
  const int rank = static_cast<int>(peer);
  return simulated::recv({__func__, comm, stream, nullptr, out, count, type_of(type), Op::Sum, rank}, kCodes);
}
int HcclBatchSendRecv(Item* items, uint32_t count, Comm* comm, void* stream) {
  if (count == 0) {
    return 0;
  }
  if (items == nullptr || comm == nullptr || (simulated::is_ascend() && stream == nullptr)) {
    return refuse(__func__, kPointer, "the items, the communicator or the stream is NULL");
  }
  simulated::group_start(kCodes);
  int status = 0;
  for (uint32_t i = 0; i < count && status == 0; ++i) {
    const Item& item = items[i];
    const auto type = type_of(item.type);
    const int rank = static_cast<int>(item.peer);
    if (item.direction != 0 && item.direction != 1) {
      status = refuse(__func__, kParameter, "an item neither sends nor receives");
    } else if (item.count != 0) {
      status = check(__func__, comm, {item.buffer}, item.type, 0, false, stream);
    }
    if (status != 0 || item.count == 0) {
      continue;
    }
    status = item.direction == 0
        ? simulated::send({__func__, comm, stream, item.buffer, nullptr, item.count, type, Op::Sum, rank}, kCodes)
        : simulated::recv({__func__, comm, stream, nullptr, item.buffer, item.count, type, Op::Sum, rank}, kCodes);
  }
  const int ended = simulated::group_end(kCodes);
  return status != 0 ? status : ended;
}

} // extern "C"
#pragma GCC visibility pop
