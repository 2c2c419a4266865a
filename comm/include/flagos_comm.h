/* The C table of collectives, for C and C++.
 * SPDX-License-Identifier: Apache-2.0
 * Generated from comm/src/abi/types.rs by `cargo run -p flagos-comm --example header`: do not edit. */

#ifndef FLAGOS_COMM_H
#define FLAGOS_COMM_H

#include <stddef.h>
#include <stdint.h>

/**
 * Version of the table's layout. Fields are only ever appended; anything else raises this number.
 */
#define FLAGOS_COMM_ABI_VERSION 1

/**
 * Status: success.
 */
#define FLAGOS_COMM_OK 0

/**
 * Status: the caller passed something that cannot be served.
 */
#define FLAGOS_COMM_INVALID_ARGUMENT 1

/**
 * Status: the engine cannot do this; nothing has been sent.
 */
#define FLAGOS_COMM_UNSUPPORTED 2

/**
 * Status: a rank did not come within the timeout.
 */
#define FLAGOS_COMM_TIMEOUT 3

/**
 * Status: a rank's process has ended.
 */
#define FLAGOS_COMM_PEER_LOST 4

/**
 * Status: ranks called different collectives, or with different arguments.
 */
#define FLAGOS_COMM_MISMATCH 5

/**
 * Status: the group was aborted, here or by another rank.
 */
#define FLAGOS_COMM_ABORTED 6

/**
 * Status: a vendor's library failed.
 */
#define FLAGOS_COMM_LIBRARY 7

/**
 * Status: the operating system or the store failed.
 */
#define FLAGOS_COMM_SYSTEM 8

/**
 * Status: a bug in flagos (a caught panic).
 */
#define FLAGOS_COMM_INTERNAL 9

/**
 * `FlagosCollective::root`: from any rank.
 */
#define FLAGOS_COMM_ANY_RANK -1

/**
 * `FlagosCollective::kind`.
 */
enum FlagosCommKind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  FlagosCommKind_AllReduce = 0,
  FlagosCommKind_Broadcast = 1,
  FlagosCommKind_Reduce = 2,
  FlagosCommKind_AllGather = 3,
  FlagosCommKind_Gather = 4,
  FlagosCommKind_Scatter = 5,
  FlagosCommKind_ReduceScatter = 6,
  FlagosCommKind_AllToAll = 7,
  FlagosCommKind_Barrier = 8,
  FlagosCommKind_Send = 9,
  FlagosCommKind_Recv = 10,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FlagosCommKind FlagosCommKind;
#else
typedef uint32_t FlagosCommKind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * `FlagosCollective::dtype`, with torch's names.
 */
enum FlagosCommDType
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  FlagosCommDType_UInt8 = 0,
  FlagosCommDType_Int8 = 1,
  FlagosCommDType_Int16 = 2,
  FlagosCommDType_Int32 = 3,
  FlagosCommDType_Int64 = 4,
  FlagosCommDType_UInt16 = 5,
  FlagosCommDType_UInt32 = 6,
  FlagosCommDType_UInt64 = 7,
  FlagosCommDType_Float16 = 8,
  FlagosCommDType_BFloat16 = 9,
  FlagosCommDType_Float32 = 10,
  FlagosCommDType_Float64 = 11,
  FlagosCommDType_Bool = 12,
  FlagosCommDType_Complex64 = 13,
  FlagosCommDType_Complex128 = 14,
  FlagosCommDType_Float8E4M3Fn = 15,
  FlagosCommDType_Float8E5M2 = 16,
  FlagosCommDType_Float8E4M3FnUz = 17,
  FlagosCommDType_Float8E5M2FnUz = 18,
  /**
   * Anything else, counted in bytes.
   */
  FlagosCommDType_Bytes = 19,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FlagosCommDType FlagosCommDType;
#else
typedef uint32_t FlagosCommDType;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * `FlagosCollective::reduce`.
 */
enum FlagosCommReduce
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  FlagosCommReduce_Sum = 0,
  FlagosCommReduce_Avg = 1,
  FlagosCommReduce_Prod = 2,
  FlagosCommReduce_Min = 3,
  FlagosCommReduce_Max = 4,
  FlagosCommReduce_BitAnd = 5,
  FlagosCommReduce_BitOr = 6,
  FlagosCommReduce_BitXor = 7,
  FlagosCommReduce_PremulSum = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FlagosCommReduce FlagosCommReduce;
#else
typedef uint32_t FlagosCommReduce;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * One rank's end of a group; opaque.
 */
typedef struct FlagosComm FlagosComm;

/**
 * What a communicator is made of. Strings are NUL-terminated UTF-8, read before `connect` returns.
 */
typedef struct FlagosCommConfig {
  /**
   * The engine's name; NULL or empty lets the memory decide.
   */
  const char *engine;
  /**
   * The file of the engine's library; NULL or empty searches.
   */
  const char *library;
  /**
   * The vendor whose memory the buffers are.
   */
  const char *vendor;
  /**
   * The name of the group, for messages.
   */
  const char *group;
  /**
   * This rank.
   */
  uint32_t rank;
  /**
   * Ranks of the group.
   */
  uint32_t size;
  /**
   * How long to wait for the others to connect, in milliseconds.
   */
  uint64_t timeout_ms;
  /**
   * Bytes of a window of the engine `shm`; 0 for the default.
   */
  uint64_t window;
} FlagosCommConfig;

/**
 * The framework's key-value store, with keys of one group. Both functions return 0, or anything else after
 * they have written a message into `error`, which has room for `capacity` bytes: `FLAGOS_COMM_TIMEOUT` says that
 * a key did not come in time, everything else that the store cannot be used.
 */
typedef struct FlagosCommStore {
  /**
   * Given back to the functions.
   */
  void *context;
  /**
   * Writes a value.
   */
  int32_t (*set)(void *context,
                 const char *key,
                 const uint8_t *value,
                 uint64_t length,
                 char *error,
                 uint64_t capacity);
  /**
   * Waits for a key and hands its value to `take`, once, with `taker`.
   */
  int32_t (*get)(void *context,
                 const char *key,
                 uint64_t timeout_ms,
                 void (*take)(void *taker, const uint8_t *value, uint64_t length),
                 void *taker,
                 char *error,
                 uint64_t capacity);
} FlagosCommStore;

/**
 * One call. Lists have one entry a rank where the collective has one part a rank, otherwise one entry; a
 * rank that only sends or only receives in this call gives an empty one.
 */
typedef struct FlagosCollective {
  /**
   * A `FlagosCommKind`.
   */
  uint32_t kind;
  /**
   * A `FlagosCommDType`.
   */
  uint32_t dtype;
  /**
   * A `FlagosCommReduce`; 0 where nothing is reduced.
   */
  uint32_t reduce;
  /**
   * The root, or the other rank of a transfer.
   */
  int32_t root;
  /**
   * Of a transfer.
   */
  int32_t tag;
  /**
   * Entries of `send`.
   */
  uint32_t sends;
  /**
   * Entries of `recv`.
   */
  uint32_t receives;
  /**
   * Always 0.
   */
  uint32_t reserved;
  /**
   * Elements of each part.
   */
  uint64_t count;
  /**
   * The factor of `FlagosCommReduce_PremulSum`.
   */
  double factor;
  /**
   * The number of this call in its group, for messages.
   */
  uint64_t sequence;
  /**
   * How long to wait for other ranks, in milliseconds.
   */
  uint64_t timeout_ms;
  /**
   * What goes out.
   */
  const void *const *send;
  /**
   * Where it comes in.
   */
  void *const *recv;
  /**
   * Elements to each rank, for all-to-all; otherwise NULL.
   */
  const uint64_t *send_counts;
  /**
   * Elements from each rank, for all-to-all; otherwise NULL.
   */
  const uint64_t *recv_counts;
} FlagosCollective;

/**
 * The functions. Those that return `int32_t` return a status; the message is in `last_error`.
 */
typedef struct FlagosCommApi {
  /**
   * Bytes of this structure in the library that made it.
   */
  uint64_t struct_size;
  /**
   * `FLAGOS_COMM_ABI_VERSION` of that library.
   */
  uint32_t abi_version;
  /**
   * The message of this thread's last failure; valid until its next one.
   */
  const char *(*last_error)(void);
  /**
   * The rank that failure is due to, or -1.
   */
  int32_t (*last_culprit)(void);
  /**
   * Frees a string of this table.
   */
  void (*string_free)(char *string);
  /**
   * Connects this rank to its group, with the device of the buffers current.
   */
  int32_t (*connect)(const struct FlagosCommConfig *config,
                     const struct FlagosCommStore *store,
                     struct FlagosComm **out);
  /**
   * Disconnects. No call is running or queued any more.
   */
  void (*disconnect)(struct FlagosComm *comm);
  /**
   * The engine's name, static.
   */
  const char *(*engine)(const struct FlagosComm *comm);
  /**
   * 1 when calls are queued on a stream, 0 when they are done on return.
   */
  int32_t (*on_streams)(const struct FlagosComm *comm);
  /**
   * Runs or queues a call. `stream` is the vendor's own, or NULL for an engine without streams.
   */
  int32_t (*run)(const struct FlagosComm *comm, const struct FlagosCollective *call, void *stream);
  /**
   * Runs a receive from any rank and writes whose it was.
   */
  int32_t (*receive_any)(const struct FlagosComm *comm,
                         const struct FlagosCollective *call,
                         int32_t *source);
  /**
   * Begins calls that may be queued as one, of this thread.
   */
  int32_t (*group_start)(const struct FlagosComm *comm);
  /**
   * Ends them.
   */
  int32_t (*group_end)(const struct FlagosComm *comm);
  /**
   * Ends all calls of the group with a reason.
   */
  void (*abort)(const struct FlagosComm *comm, const char *reason);
  /**
   * A failure that happened after a call had returned.
   */
  int32_t (*async_error)(const struct FlagosComm *comm);
  /**
   * What is known of the ranks, as JSON; to be freed with `string_free`.
   */
  int32_t (*state_json)(const struct FlagosComm *comm, char **out);
  /**
   * Whether the engine of `config` can be used here: NULL or an empty string when it cannot, with the
   * reason in `last_error`; else what serves it. To be freed with `string_free`.
   */
  int32_t (*probe)(const struct FlagosCommConfig *config, char **out);
} FlagosCommApi;

#endif  /* FLAGOS_COMM_H */
