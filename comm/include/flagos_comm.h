/* The C table of collectives, for C and C++.
 * SPDX-License-Identifier: Apache-2.0
 * Generated from comm/src by `cargo run -p flagos-comm --example header`: do not edit. */

#ifndef FLAGOS_COMM_H
#define FLAGOS_COMM_H

#include <stddef.h>
#include <stdint.h>

/**
 * Version of the table's layout. Fields are only ever appended; anything else raises this number.
 */
#define FLAGOS_COMM_ABI_VERSION 4

/**
 * Status: success.
 */
#define FLAGOS_COMM_OK 0

/**
 * Status: an argument is wrong.
 */
#define FLAGOS_COMM_INVALID_ARGUMENT 1

/**
 * Status: the engine does not support the call, and has sent nothing.
 */
#define FLAGOS_COMM_UNSUPPORTED 2

/**
 * Status: a rank did not make its call within the time-out.
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
 * Status: a defect in flagos, such as a caught panic.
 */
#define FLAGOS_COMM_INTERNAL 9

/**
 * `FlagosCollective::root`: from any rank.
 */
#define FLAGOS_COMM_ANY_RANK -1

/**
 * The kinds of calls. The discriminants are those of the C table.
 */
enum FlagosCommKind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Every rank gets the reduction of all.
   */
  FlagosCommKind_AllReduce = 0,
  /**
   * Every rank gets the root's data.
   */
  FlagosCommKind_Broadcast = 1,
  /**
   * The root gets the reduction of all.
   */
  FlagosCommKind_Reduce = 2,
  /**
   * Every rank gets the data of all ranks.
   */
  FlagosCommKind_AllGather = 3,
  /**
   * The root gets the data of all ranks.
   */
  FlagosCommKind_Gather = 4,
  /**
   * Every rank gets its part of the root's data.
   */
  FlagosCommKind_Scatter = 5,
  /**
   * Every rank gets its part of the reduction of all.
   */
  FlagosCommKind_ReduceScatter = 6,
  /**
   * Every rank gets its part of the data of each rank.
   */
  FlagosCommKind_AllToAll = 7,
  /**
   * No rank goes on before all have made the call.
   */
  FlagosCommKind_Barrier = 8,
  /**
   * A transfer to one rank.
   */
  FlagosCommKind_Send = 9,
  /**
   * A transfer from one rank.
   */
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
 * An element's type. The discriminants are those of the C table.
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
   * Any other type, counted in bytes: it can be moved, but not reduced.
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
 * How values are combined. The discriminants are those of the C table.
 */
enum FlagosCommReduce
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  FlagosCommReduce_Sum = 0,
  /**
   * The sum divided by the number of ranks; integers round towards zero.
   */
  FlagosCommReduce_Avg = 1,
  FlagosCommReduce_Prod = 2,
  FlagosCommReduce_Min = 3,
  FlagosCommReduce_Max = 4,
  FlagosCommReduce_BitAnd = 5,
  FlagosCommReduce_BitOr = 6,
  FlagosCommReduce_BitXor = 7,
  /**
   * The sum of values multiplied by a factor of their rank.
   */
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
 * The communicators of a group that a request concerns.
 */
enum FlagosCommSide
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * The communicator on host memory.
   */
  FlagosCommSide_Host = 0,
  /**
   * The communicators on devices.
   */
  FlagosCommSide_Devices = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FlagosCommSide FlagosCommSide;
#else
typedef uint32_t FlagosCommSide;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A communicator of a group on a device; opaque, as long-lived as the group.
 */
typedef struct FlagosCommEndpoint FlagosCommEndpoint;

/**
 * One rank's end of a process group; opaque.
 */
typedef struct FlagosCommGroup FlagosCommGroup;

/**
 * The description of a group. Strings are NUL-terminated UTF-8, read before `group_open` returns.
 */
typedef struct FlagosCommConfig {
  /**
   * The name of the engine on devices; NULL or empty where the vendor decides.
   */
  const char *engine;
  /**
   * The file of that engine's library; NULL or empty where it is searched by name.
   */
  const char *library;
  /**
   * The vendor of the devices' memory, for messages.
   */
  const char *vendor;
  /**
   * The engine for that memory, which the vendor's description names; NULL or empty for none.
   */
  const char *vendor_engine;
  /**
   * The name of the group, for messages.
   */
  const char *group;
  /**
   * The folder for the report of a call that fails; NULL or empty for none.
   */
  const char *dump;
  /**
   * The number of this rank.
   */
  uint32_t rank;
  /**
   * The number of ranks in the group.
   */
  uint32_t size;
  /**
   * The longest time to wait for the other ranks to connect, in milliseconds.
   */
  uint64_t timeout_ms;
  /**
   * Bytes of a window of the engine `shm`; 0 for the default.
   */
  uint64_t window;
  /**
   * Makes a device the current one of the calling thread. Returns a number as the store's functions do.
   */
  int32_t (*use_device)(int32_t device, char *error, uint64_t capacity);
} FlagosCommConfig;

/**
 * The framework's key-value store, with keys of one group, for any thread. `set` and `get` return 0 on success. After a
 * failure they write a message into `error`, which has room for `capacity` bytes, and return `FLAGOS_COMM_TIMEOUT` when
 * a key did not come in time, any other number when the store cannot be used.
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
  /**
   * Called when the store is not needed any more.
   */
  void (*release)(void *context);
} FlagosCommStore;

/**
 * One call. A list has one entry for each rank where the collective has one part for each rank, otherwise one
 * entry. It is empty where this rank sends or receives nothing.
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
   * The tag of a transfer.
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
   * The longest time to wait for other ranks, in milliseconds.
   */
  uint64_t timeout_ms;
  /**
   * The addresses of data to send.
   */
  const void *const *send;
  /**
   * The addresses of received data.
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
 * The callbacks for the end of a queued call.
 */
typedef struct FlagosCommWaiter {
  /**
   * Given back to the functions.
   */
  void *context;
  /**
   * Called once, on a thread of the group, when the call has ended: with its status, whose message is in `last_error`,
   * and with the rank that sent to a receive from any rank, or -1. Returns 1 when `after` is to be called.
   */
  int32_t (*ended)(void *context, int32_t status, int32_t source);
  /**
   * Runs callbacks of the program, which may wait for other calls of the group.
   */
  void (*after)(void *context);
} FlagosCommWaiter;

/**
 * A reduction that an engine has for a call, and the work that is left to the caller.
 */
typedef struct FlagosCommLowered {
  /**
   * The `FlagosCommReduce` to call with.
   */
  uint32_t reduce;
  /**
   * 1 when the caller multiplies the data to send by the call's factor.
   */
  uint32_t scale_sends;
  /**
   * 1 when the caller divides the result by the number of ranks.
   */
  uint32_t divide_result;
  /**
   * 1 when the caller gathers the data of all ranks, and reduces them in the order of the ranks.
   */
  uint32_t gathers;
} FlagosCommLowered;

/**
 * The functions. A function returning `int32_t` returns a status unless its comment says otherwise; the message of a
 * failure is in `last_error`.
 */
typedef struct FlagosCommApi {
  /**
   * Bytes of this structure in the library.
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
   * Frees a string of this table.
   */
  void (*string_free)(char *string);
  /**
   * Connects this rank to its group on host memory. The store is released when it is not needed any more, also after
   * a failure.
   */
  int32_t (*group_open)(const struct FlagosCommConfig *config,
                        const struct FlagosCommStore *store,
                        struct FlagosCommGroup **out);
  /**
   * Closes the group. Calls queued on host memory are finished first. No call may be queued on a device.
   */
  void (*group_close)(struct FlagosCommGroup *group);
  /**
   * Fails, with the reason, when the ranks share no host memory.
   */
  int32_t (*host)(const struct FlagosCommGroup *group);
  /**
   * 1 when no collective on host memory is queued or running, so that `host_run` keeps the order; else 0.
   */
  int32_t (*host_is_idle)(const struct FlagosCommGroup *group);
  /**
   * Runs a collective on host memory, on this thread.
   */
  int32_t (*host_run)(const struct FlagosCommGroup *group, const struct FlagosCollective *call);
  /**
   * Queues a call on host memory. The call and its lists stay valid until `waiter` is called. When this function
   * itself fails, `waiter` is not called.
   */
  int32_t (*host_queue)(const struct FlagosCommGroup *group,
                        const struct FlagosCollective *call,
                        int32_t asynchronous,
                        const struct FlagosCommWaiter *waiter);
  /**
   * The communicator on `device` of all ranks (`peer` is `FLAGOS_COMM_ANY_RANK`), or of this one and `peer`, with
   * the number of this rank and of all ranks in it. The first call connects it within `timeout_ms`.
   */
  int32_t (*endpoint)(const struct FlagosCommGroup *group,
                      int32_t device,
                      int32_t peer,
                      uint64_t timeout_ms,
                      const struct FlagosCommEndpoint **out,
                      int32_t *rank,
                      int32_t *size);
  /**
   * The reduction that the engine runs for a call, and the work that is left to the caller.
   */
  int32_t (*lower)(const struct FlagosCommEndpoint *endpoint,
                   const struct FlagosCollective *call,
                   struct FlagosCommLowered *out);
  /**
   * Queues `count` calls on a stream, as one group when `grouped` is 1. `stream` is the vendor's own handle.
   */
  int32_t (*submit)(const struct FlagosCommEndpoint *endpoint,
                    const struct FlagosCollective *calls,
                    uint64_t count,
                    int32_t grouped,
                    void *stream);
  /**
   * Notes a call on a device in the flight recorder and writes its number.
   */
  int32_t (*record_begin)(const struct FlagosCommGroup *group,
                          const struct FlagosCollective *call,
                          int32_t asynchronous,
                          uint64_t *number);
  /**
   * Notes the end of the call with this number.
   */
  void (*record_end)(const struct FlagosCommGroup *group, uint64_t number, int32_t well);
  /**
   * Reports a failure on a device, once in the group's life: to standard error and into the folder `dump`.
   */
  void (*report)(const struct FlagosCommGroup *group, const char *why);
  /**
   * Ends all calls of one `FlagosCommSide`, with a reason.
   */
  void (*abort)(const struct FlagosCommGroup *group, uint32_t side, const char *reason);
  /**
   * A failure of one `FlagosCommSide` that happened after a call had returned.
   */
  int32_t (*async_error)(const struct FlagosCommGroup *group, uint32_t side);
  /**
   * Waits for all ranks. Fails with the missing ranks: all of them when `wait_for_all` is 1, otherwise the first. All
   * ranks call it.
   */
  int32_t (*monitored_barrier)(const struct FlagosCommGroup *group,
                               int64_t timeout_ms,
                               int32_t wait_for_all);
  /**
   * The last calls and the state of the ranks, as JSON; free it with `string_free`.
   */
  int32_t (*state_json)(const struct FlagosCommGroup *group, char **out);
} FlagosCommApi;

/**
 * Every kind, by discriminant.
 */
#define FlagosCommKind_ALL { FlagosCommKind_AllReduce, FlagosCommKind_Broadcast, FlagosCommKind_Reduce, FlagosCommKind_AllGather, FlagosCommKind_Gather, FlagosCommKind_Scatter, FlagosCommKind_ReduceScatter, FlagosCommKind_AllToAll, FlagosCommKind_Barrier, FlagosCommKind_Send, FlagosCommKind_Recv, }

/**
 * Every type, by discriminant.
 */
#define FlagosCommDType_ALL { FlagosCommDType_UInt8, FlagosCommDType_Int8, FlagosCommDType_Int16, FlagosCommDType_Int32, FlagosCommDType_Int64, FlagosCommDType_UInt16, FlagosCommDType_UInt32, FlagosCommDType_UInt64, FlagosCommDType_Float16, FlagosCommDType_BFloat16, FlagosCommDType_Float32, FlagosCommDType_Float64, FlagosCommDType_Bool, FlagosCommDType_Complex64, FlagosCommDType_Complex128, FlagosCommDType_Float8E4M3Fn, FlagosCommDType_Float8E5M2, FlagosCommDType_Float8E4M3FnUz, FlagosCommDType_Float8E5M2FnUz, FlagosCommDType_Bytes, }

/**
 * Every operation, by discriminant.
 */
#define FlagosCommReduce_ALL { FlagosCommReduce_Sum, FlagosCommReduce_Avg, FlagosCommReduce_Prod, FlagosCommReduce_Min, FlagosCommReduce_Max, FlagosCommReduce_BitAnd, FlagosCommReduce_BitOr, FlagosCommReduce_BitXor, FlagosCommReduce_PremulSum, }

#endif  /* FLAGOS_COMM_H */
