/* What flagos calls of NCCL 2.11 and later, and of the libraries with its interface. Names are without their
 * prefix, which is nccl, or mccl.
 * SPDX-License-Identifier: Apache-2.0 */

/* Without headers of a compiler, which pip's libclang does not have. */
typedef __SIZE_TYPE__ size_t;

/* Newer libraries answer codes that are not named here. */
typedef enum {
  Success = 0,
  InProgress = 7
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

/* What RedOpCreatePreMulSum makes has a code of its own, above these. */
typedef enum {
  Sum = 0,
  Prod = 1,
  Max = 2,
  Min = 3,
  Avg = 4
} RedOp;

/* Whether a factor is in device memory, or in host memory and read before the call returns. */
typedef enum {
  ScalarDevice = 0,
  ScalarHostImmediate = 1
} ScalarResidence;

/* Passed by value. */
typedef struct {
  char internal[128];
} UniqueId;

typedef struct CommStructure *Comm;
/* The vendor's own stream. */
typedef void *Stream;

Result GetVersion(int *version);
Result GetUniqueId(UniqueId *id);
const char *GetErrorString(Result result);
/* The communicator may be NULL. */
const char *GetLastError(Comm comm);
Result CommInitRank(Comm *comm, int size, UniqueId id, int rank);
Result CommDestroy(Comm comm);
Result CommAbort(Comm comm);
Result CommGetAsyncError(Comm comm, Result *error);
Result RedOpCreatePreMulSum(RedOp *op, void *scalar, DataType type, ScalarResidence residence, Comm comm);
Result RedOpDestroy(RedOp op, Comm comm);

/* Counts are of elements: of the whole buffer, but of one rank's part where parts are gathered or scattered. */
Result AllReduce(const void *send, void *recv, size_t count, DataType type, RedOp op, Comm comm, Stream stream);
Result Reduce(const void *send, void *recv, size_t count, DataType type, RedOp op, int root, Comm comm, Stream stream);
Result Broadcast(const void *send, void *recv, size_t count, DataType type, int root, Comm comm, Stream stream);
Result AllGather(const void *send, void *recv, size_t count, DataType type, Comm comm, Stream stream);
Result ReduceScatter(const void *send, void *recv, size_t count, DataType type, RedOp op, Comm comm, Stream stream);
Result Send(const void *send, size_t count, DataType type, int peer, Comm comm, Stream stream);
Result Recv(void *recv, size_t count, DataType type, int peer, Comm comm, Stream stream);
Result GroupStart(void);
Result GroupEnd(void);
