/* What flagos calls of HCCL, as of CANN 8. Names are without their prefix, Hccl.
 * SPDX-License-Identifier: Apache-2.0 */

/* Without headers of a compiler, which pip's libclang does not have. */
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;

typedef enum {
  Success = 0,
  NotSupport = 5
} Result;

typedef enum {
  Int8 = 0,
  Int16 = 1,
  Int32 = 2,
  Float16 = 3,
  Float32 = 4,
  Int64 = 5,
  UInt64 = 6,
  UInt8 = 7,
  UInt16 = 8,
  UInt32 = 9,
  Float64 = 10,
  BFloat16 = 11
} DataType;

typedef enum {
  Sum = 0,
  Prod = 1,
  Max = 2,
  Min = 3
} ReduceOp;

typedef enum {
  SendItem = 0,
  RecvItem = 1
} Direction;

typedef struct {
  char internal[4108];
} RootInfo;

typedef void *Comm;
/* The vendor's own stream. */
typedef void *Stream;

/* A transfer of a batch. */
typedef struct {
  Direction direction;
  void *buffer;
  uint64_t count;
  DataType type;
  uint32_t peer;
} SendRecvItem;

const char *GetErrorString(Result result);
Result GetRootInfo(RootInfo *info);
Result CommInitRootInfo(uint32_t size, const RootInfo *info, uint32_t rank, Comm *comm);
Result CommDestroy(Comm comm);
Result GetCommAsyncError(Comm comm, Result *error);

/* Counts are of elements: of the whole buffer, but of one rank's part where parts are gathered or scattered. */
Result AllReduce(void *send, void *recv, uint64_t count, DataType type, ReduceOp op, Comm comm, Stream stream);
Result Reduce(void *send, void *recv, uint64_t count, DataType type, ReduceOp op, uint32_t root, Comm comm, Stream stream);
Result Broadcast(void *buffer, uint64_t count, DataType type, uint32_t root, Comm comm, Stream stream);
Result AllGather(void *send, void *recv, uint64_t count, DataType type, Comm comm, Stream stream);
Result ReduceScatter(void *send, void *recv, uint64_t count, DataType type, ReduceOp op, Comm comm, Stream stream);
Result Send(void *send, uint64_t count, DataType type, uint32_t peer, Comm comm, Stream stream);
Result Recv(void *recv, uint64_t count, DataType type, uint32_t peer, Comm comm, Stream stream);
Result BatchSendRecv(SendRecvItem *items, uint32_t count, Comm comm, Stream stream);
