/* What flagos calls of FlagCX 0.4 to 0.13. Names are without their prefix, flagcx.
 * SPDX-License-Identifier: Apache-2.0 */

/* Without headers of a compiler, which pip's libclang does not have. */
typedef __SIZE_TYPE__ size_t;

typedef enum {
  Success = 0,
  UnhandledDeviceError = 1,
  SystemError = 2,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
  InProgress = 7,
  UnhandledCclError = 8,
  NotSupported = 9
} Result;

typedef enum {
  Int8 = 0,
  UInt8 = 1,
  Int32 = 2,
  UInt32 = 3,
  Int64 = 4,
  UInt64 = 5,
  Float16 = 6,
  Float32 = 7,
  Float64 = 8,
  BFloat16 = 9
} DataType;

typedef enum {
  Sum = 0,
  Prod = 1,
  Max = 2,
  Min = 3,
  Avg = 4
} RedOp;

/* Passed by address. */
typedef struct {
  char internal[256];
} UniqueId;

typedef struct CommStructure *Comm;

/* A structure around the vendor's own stream, read before a call returns. */
typedef struct {
  void *base;
} StreamStructure;
typedef const StreamStructure *Stream;

/* Fills the id; older releases write the address of one they allocated into it. */
Result GetUniqueId(UniqueId *id);
Result CommInitRank(Comm *comm, int size, const UniqueId *id, int rank);
Result CommDestroy(Comm comm);
Result CommAbort(Comm comm);
Result CommGetAsyncError(Comm comm, Result *error);
const char *GetLastError(Comm comm);

/* Counts are of elements: of the whole buffer, but of one rank's part where parts are gathered or scattered. */
Result AllReduce(const void *send, void *recv, size_t count, DataType type, RedOp op, Comm comm, Stream stream);
Result Reduce(const void *send, void *recv, size_t count, DataType type, RedOp op, int root, Comm comm, Stream stream);
Result Broadcast(const void *send, void *recv, size_t count, DataType type, int root, Comm comm, Stream stream);
Result AllGather(const void *send, void *recv, size_t count, DataType type, Comm comm, Stream stream);
Result ReduceScatter(const void *send, void *recv, size_t count, DataType type, RedOp op, Comm comm, Stream stream);
Result Send(const void *send, size_t count, DataType type, int peer, Comm comm, Stream stream);
Result Recv(void *recv, size_t count, DataType type, int peer, Comm comm, Stream stream);
Result GroupStart(Comm comm);
Result GroupEnd(Comm comm);
