/* The C table of the flagos core, for C and C++.
 * SPDX-License-Identifier: Apache-2.0
 * Generated from core/src/abi/types.rs by `cargo run -p flagos-core --example header`: do not edit. */

#ifndef FLAGOS_H
#define FLAGOS_H

#include <stddef.h>
#include <stdint.h>
#include "flagos_vendor.h"
#include "flagos_kernels.h"

#if defined(_MSC_VER)
#define FLAGOS_ALIGNED(n) __declspec(align(n))
#else
#define FLAGOS_ALIGNED(n) __attribute__((aligned(n)))
#endif

/**
 * Version of the table's layout. Fields are only ever appended; anything else raises this number.
 */
#define FLAGOS_ABI_VERSION 1

/**
 * Status: success.
 */
#define FLAGOS_OK 0

/**
 * Status: an argument is out of range or a handle is not alive.
 */
#define FLAGOS_INVALID_ARGUMENT 1

/**
 * Status: the configuration is wrong (file, environment or API); the message has file and line.
 */
#define FLAGOS_CONFIG 2

/**
 * Status: no memory left; the message has a table of the memory in use.
 */
#define FLAGOS_OUT_OF_MEMORY 3

/**
 * Status: the device or a piece of queued work failed.
 */
#define FLAGOS_DEVICE 4

/**
 * Status: `init` has not succeeded in this process.
 */
#define FLAGOS_NOT_INITIALIZED 5

/**
 * Status: not supported by this vendor or in this context.
 */
#define FLAGOS_UNSUPPORTED 6

/**
 * Status: the process is a forked child of one that had initialised.
 */
#define FLAGOS_FORKED 7

/**
 * Status: a defect in flagos, such as a caught panic.
 */
#define FLAGOS_INTERNAL 8

/**
 * `FlagosOpSlot::route`: the adapter's own native path.
 */
#define FLAGOS_ROUTE_NATIVE 0

/**
 * `FlagosOpSlot::route`: an object registered through the API, found by `impl_token`.
 */
#define FLAGOS_ROUTE_FOREIGN 1

/**
 * `FlagosOpSlot::route`: no implementation is usable; raise the text of `op_blocked_reason`.
 */
#define FLAGOS_ROUTE_BLOCKED 2

/**
 * `FlagosOpSlot::route`: the adapter's native path on the CPU, with copies where device memory is not the host's.
 */
#define FLAGOS_ROUTE_CPU_FALLBACK 3

/**
 * `FlagosOpSlot::flags`: log this dispatch.
 */
#define FLAGOS_FLAG_LOG 1

/**
 * `FlagosLaunchDesc::flags`: every block of the grid runs at the same time.
 */
#define FLAGOS_LAUNCH_COOPERATIVE 1

/**
 * `FlagosLaunchDesc::flags`: programmatic dependent launch: the kernel may begin before the kernel ahead
 * of it in the stream has ended.
 */
#define FLAGOS_LAUNCH_PDL 2

/**
 * `FlagosStep::kind`: a launch of a kernel.
 */
#define FLAGOS_STEP_LAUNCH 0

/**
 * `FlagosStep::kind`: every element of `target` becomes the number.
 */
#define FLAGOS_STEP_FILL 1

/**
 * `FlagosStep::kind`: `target` becomes a copy of `source`.
 */
#define FLAGOS_STEP_COPY 2

/**
 * `FlagosStep::number_kind`: `integer`.
 */
#define FLAGOS_NUMBER_INTEGER 0

/**
 * `FlagosStep::number_kind`: `real`.
 */
#define FLAGOS_NUMBER_DOUBLE 1

/**
 * `FlagosStep::number_kind`: a boolean, 0 or 1 in `integer`.
 */
#define FLAGOS_NUMBER_BOOL 2

/**
 * `graph_capture_begin`: until the end, no thread makes calls that wait for the device or that copy at once.
 */
#define FLAGOS_CAPTURE_GLOBAL 0

/**
 * `graph_capture_begin`: until the end, the thread that calls makes no such calls.
 */
#define FLAGOS_CAPTURE_THREAD_LOCAL 1

/**
 * `graph_capture_begin`: every thread may make such calls, and any may end the capture.
 */
#define FLAGOS_CAPTURE_RELAXED 2

/**
 * `stream_capture_status`: the stream is not captured.
 */
#define FLAGOS_CAPTURE_NONE 0

/**
 * `stream_capture_status`: work queued on the stream becomes part of a graph.
 */
#define FLAGOS_CAPTURE_ACTIVE 1

/**
 * `stream_capture_status`: something has happened that the capture forbids, and it can only be ended.
 */
#define FLAGOS_CAPTURE_INVALID 2

/**
 * A graph made by `graph_create`.
 */
typedef struct FlagosGraph FlagosGraph;

/**
 * A launch made by `launch_create`.
 */
typedef struct FlagosLaunch FlagosLaunch;

/**
 * The properties of a device.
 */
typedef struct FlagosDeviceProperties {
  /**
   * Product name, NUL-terminated UTF-8.
   */
  char name[256];
  /**
   * Vendor name as in `FLAGOS_VENDOR`, NUL-terminated.
   */
  char vendor[32];
  /**
   * Memory of the device in bytes.
   */
  uint64_t total_memory;
  /**
   * Multiprocessors; cores on the host.
   */
  int32_t multi_processor_count;
  /**
   * Compute capability, major.
   */
  int32_t major;
  /**
   * Compute capability, minor.
   */
  int32_t minor;
} FlagosDeviceProperties;

/**
 * One statistic, as torch's `Stat`.
 */
typedef struct FlagosStat {
  /**
   * Value now.
   */
  int64_t current;
  /**
   * Highest value since `mem_reset_peak`.
   */
  int64_t peak;
  /**
   * Sum of increases since `mem_reset_accumulated`.
   */
  int64_t allocated;
  /**
   * Sum of decreases since `mem_reset_accumulated`.
   */
  int64_t freed;
} FlagosStat;

/**
 * A statistic over both pools and for each, in the order of torch's `StatType`.
 */
typedef struct FlagosStatArray {
  /**
   * Both pools.
   */
  struct FlagosStat all;
  /**
   * Blocks of at most 1 MiB.
   */
  struct FlagosStat small_pool;
  /**
   * Larger blocks.
   */
  struct FlagosStat large_pool;
} FlagosStatArray;

/**
 * Allocator statistics of one device, with the names and meanings of torch's `DeviceStats`.
 */
typedef struct FlagosMemoryStats {
  /**
   * Count: allocations handed to callers.
   */
  struct FlagosStatArray allocation;
  /**
   * Count: segments obtained from the vendor.
   */
  struct FlagosStatArray segment;
  /**
   * Count: blocks allocated or waiting for another stream.
   */
  struct FlagosStatArray active;
  /**
   * Count: free blocks that share their segment with others.
   */
  struct FlagosStatArray inactive_split;
  /**
   * Bytes in `allocation`.
   */
  struct FlagosStatArray allocated_bytes;
  /**
   * Bytes in `segment`.
   */
  struct FlagosStatArray reserved_bytes;
  /**
   * Bytes in `active`.
   */
  struct FlagosStatArray active_bytes;
  /**
   * Bytes in `inactive_split`.
   */
  struct FlagosStatArray inactive_split_bytes;
  /**
   * Bytes callers asked for, before rounding.
   */
  struct FlagosStatArray requested_bytes;
  /**
   * Vendor allocations that succeeded only after cached memory was released.
   */
  int64_t num_alloc_retries;
  /**
   * Out-of-memory errors returned.
   */
  int64_t num_ooms;
  /**
   * Times every stream of the device was waited for.
   */
  int64_t num_sync_all_streams;
  /**
   * Calls to the vendor's allocation function.
   */
  int64_t num_device_alloc;
  /**
   * Calls to the vendor's free function.
   */
  int64_t num_device_free;
} FlagosMemoryStats;

/**
 * The slot that an operator's dispatch reads. Each operator has one, which is never moved and never freed.
 * Every field is shared between threads: access it with the `__atomic` builtins only
 * (`__atomic_load_n(&slot->route, __ATOMIC_ACQUIRE)`, `__atomic_fetch_add(&slot->calls, 1, __ATOMIC_RELAXED)`).
 * Load `route` first and `impl_token` after it.
 */
typedef struct FLAGOS_ALIGNED(64) FlagosOpSlot {
  /**
   * Dispatches, counted by the adapter.
   */
  uint64_t calls;
  /**
   * Fallbacks to the reference implementation.
   */
  uint64_t fallbacks;
  /**
   * One of `FLAGOS_ROUTE_*`.
   */
  uint32_t route;
  /**
   * Bits `FLAGOS_FLAG_*`.
   */
  uint32_t flags;
  /**
   * The token of the foreign implementation when `route` is `FLAGOS_ROUTE_FOREIGN`.
   */
  uint64_t impl_token;
} FlagosOpSlot;

/**
 * The duration of calls, in microseconds.
 */
typedef struct FlagosDurationStat {
  /**
   * The sum over all calls.
   */
  int64_t total;
  /**
   * The longest call.
   */
  int64_t max;
  /**
   * The shortest call.
   */
  int64_t min;
  /**
   * The number of calls.
   */
  int64_t count;
} FlagosDurationStat;

/**
 * The statistics of pinned memory. Sizes are those of blocks, which are powers of two.
 */
typedef struct FlagosPinnedStats {
  /**
   * Count: blocks handed to callers, or waiting for a stream that uses them.
   */
  struct FlagosStat active_requests;
  /**
   * Bytes in `active_requests`.
   */
  struct FlagosStat active_bytes;
  /**
   * Count: blocks obtained from the vendor.
   */
  struct FlagosStat allocations;
  /**
   * Bytes in `allocations`.
   */
  struct FlagosStat allocated_bytes;
  /**
   * Time the vendor took to pin memory.
   */
  struct FlagosDurationStat host_alloc_time;
  /**
   * Time the vendor took to unpin memory.
   */
  struct FlagosDurationStat host_free_time;
  /**
   * Blocks obtained from the vendor so far, by log2 of their size.
   */
  int64_t bucket_allocation[64];
} FlagosPinnedStats;

/**
 * A tensor as the vendor's copy engine takes it, without its address. Dimensions begin with the one whose
 * elements lie side by side.
 */
typedef struct FlagosTensorMap {
  /**
   * The vendor's number of the elements' type, such as a `CUtensorMapDataType`.
   */
  uint32_t data_type;
  /**
   * Dimensions, 1 to 5.
   */
  uint32_t rank;
  /**
   * Elements along each.
   */
  uint64_t shape[5];
  /**
   * Bytes from one element to the next along each dimension but the first.
   */
  uint64_t strides[5];
  /**
   * Elements of a block along each dimension.
   */
  uint32_t block[5];
  /**
   * The vendor's number of the order of a block in shared memory, such as a `CUtensorMapSwizzle`.
   */
  uint32_t swizzle;
  /**
   * 1: elements outside the tensor read as NaN; 0: as zero.
   */
  uint32_t fills_with_nan;
} FlagosTensorMap;

/**
 * One parameter of a kernel.
 */
typedef struct FlagosLaunchParam {
  /**
   * Bytes: 1, 2, 4 or 8. A pointer has 8.
   */
  uint32_t size;
  /**
   * The index of the pointer given to `launch_run` that the parameter is derived from; -1: none.
   */
  int32_t pointer;
  /**
   * The parameter's bits, zero- or sign-extended; for a pointer, the offset in bytes from the given one.
   */
  uint64_t value;
  /**
   * NULL, or the tensor whose map of 128 bytes is the parameter; the pointer is the tensor's address.
   */
  const struct FlagosTensorMap *map;
} FlagosLaunchParam;

/**
 * A kernel launch that is repeated with other pointers.
 */
typedef struct FlagosLaunchDesc {
  /**
   * The function's handle in the vendor's own library, such as a `CUfunction`: loaded on the device that is current
   * there, it stays loaded as long as the launch is run.
   */
  uint64_t function;
  /**
   * Blocks along each axis, counted singly; with clusters a multiple of the cluster's size.
   */
  uint32_t grid[3];
  /**
   * Threads of a block, along each axis.
   */
  uint32_t block[3];
  /**
   * Blocks of a cluster; 1, 1, 1 for none. Clusters are spread over the device, as Triton has them.
   */
  uint32_t cluster[3];
  /**
   * Dynamic shared memory in bytes. More than 48 KiB must be allowed by the loaded function.
   */
  uint32_t shared_bytes;
  /**
   * Bits `FLAGOS_LAUNCH_*`.
   */
  uint32_t flags;
  /**
   * Every parameter in order.
   */
  const struct FlagosLaunchParam *params;
  /**
   * The number of parameters.
   */
  size_t num_params;
} FlagosLaunchDesc;

/**
 * Memory that a recorded call allocates.
 */
typedef struct FlagosBlock {
  /**
   * Bytes.
   */
  int64_t nbytes;
  /**
   * 1: some result lies in it.
   */
  uint32_t returned;
} FlagosBlock;

/**
 * A tensor in a recording.
 */
typedef struct FlagosPlace {
  /**
   * `i`: the memory of the i-th tensor among the arguments; `-1 - k`: the k-th block.
   */
  int64_t memory;
  /**
   * Bytes from the argument's first element, or from the beginning of the block.
   */
  int64_t offset;
  /**
   * The framework's number of the dtype.
   */
  uint32_t dtype;
  /**
   * Dimensions.
   */
  uint32_t rank;
  /**
   * Elements along each dimension.
   */
  const int64_t *sizes;
  /**
   * Elements from one index to the next along each dimension.
   */
  const int64_t *strides;
} FlagosPlace;

/**
 * A piece of work of a recorded call.
 */
typedef struct FlagosStep {
  /**
   * One of `FLAGOS_STEP_*`, which says which of the following fields mean something.
   */
  uint32_t kind;
  /**
   * The launch, to be run with the addresses of these memories.
   */
  const struct FlagosLaunch *launch;
  /**
   * As in `FlagosPlace`.
   */
  const int64_t *memories;
  /**
   * How many there are.
   */
  size_t num_memories;
  /**
   * The tensor that is written.
   */
  struct FlagosPlace target;
  /**
   * The tensor that is read.
   */
  struct FlagosPlace source;
  /**
   * One of `FLAGOS_NUMBER_*`.
   */
  uint32_t number_kind;
  /**
   * An integer or a boolean.
   */
  int64_t integer;
  /**
   * A floating-point number.
   */
  double real;
} FlagosStep;

/**
 * A tensor that a recorded call returns.
 */
typedef struct FlagosOutput {
  /**
   * The index of the argument that is returned, or -1.
   */
  int64_t argument;
  /**
   * Where there is no argument: the new tensor, in a block.
   */
  struct FlagosPlace place;
} FlagosOutput;

/**
 * A recording read by `recording_read`. Immutable.
 */
typedef struct FlagosRecording {
  /**
   * The memory to allocate.
   */
  const struct FlagosBlock *blocks;
  /**
   * How many blocks there are.
   */
  size_t num_blocks;
  /**
   * The work, in order.
   */
  const struct FlagosStep *steps;
  /**
   * How many steps there are.
   */
  size_t num_steps;
  /**
   * The results, in order.
   */
  const struct FlagosOutput *results;
  /**
   * How many results there are.
   */
  size_t num_results;
} FlagosRecording;

/**
 * What is special about the vendor, as data. Texts are UTF-8, end with NUL, and live as long as the process.
 */
typedef struct FlagosVendorInfo {
  /**
   * `sizeof(FlagosVendorInfo)` of the caller, which the core leaves alone: it writes no member beyond it.
   */
  size_t struct_size;
  /**
   * The vendor's name as in `FLAGOS_VENDOR`.
   */
  const char *name;
  /**
   * The device type of the framework that computes on the devices; NULL unless `serving` is
   * `FLAGOS_VENDOR_SERVED_BY_TORCH`.
   */
  const char *torch_device_type;
  /**
   * The collective engine for the vendor's memory, or NULL.
   */
  const char *collective_engine;
  /**
   * The name of the vendor's Triton backend, or NULL.
   */
  const char *triton_backend;
  /**
   * The name of the vendor in FlagGems, or NULL.
   */
  const char *flaggems_vendor;
  /**
   * How a framework computes on the devices: one of `FLAGOS_VENDOR_SERVED_BY_*` of `flagos_vendor.h`.
   */
  int32_t serving;
  /**
   * The `DLDeviceType` of device memory.
   */
  int32_t dlpack_device_type;
} FlagosVendorInfo;

/**
 * The table. Every function may be called from any thread. A function returning `int32_t` returns a
 * `FLAGOS_*` status unless its comment says otherwise; after a failure `last_error` has the message.
 * Streams: 0 is the default stream of each device; other ids come from `stream_create`.
 */
typedef struct FlagosApi {
  /**
   * `sizeof(FlagosApi)` of the library: fields beyond it do not exist.
   */
  size_t struct_size;
  /**
   * `FLAGOS_ABI_VERSION` of the library.
   */
  uint32_t abi_version;
  /**
   * The message of the last failure on this thread; valid until the next one. Never NULL.
   */
  const char *(*last_error)(void);
  /**
   * Reads the configuration, publishes the plan and opens the vendor, once per process; every later call
   * costs one load. After a failure `init` may be called again.
   */
  int32_t (*init)(void);
  /**
   * The number of devices, not a status; 0 when there is none or the configuration is wrong.
   * Initialises nothing.
   */
  int32_t (*device_count)(void);
  /**
   * Describes a device.
   */
  int32_t (*device_properties)(int32_t device, struct FlagosDeviceProperties *out);
  /**
   * Allocates memory aligned to 512 bytes, reusable in the order of `stream`. 0 bytes give a NULL
   * `data` and a NULL `block`. `block` is a handle, not an address.
   */
  int32_t (*mem_alloc)(int32_t device, uint64_t stream, size_t nbytes, void **data, void **block);
  /**
   * Gives a block back, from any thread. NULL, and any block in a forked child, is ignored.
   */
  void (*mem_free)(void *block);
  /**
   * Notes that work queued on `stream` of the block's device uses the block.
   */
  int32_t (*mem_record_stream)(void *block, uint64_t stream);
  /**
   * Gives unused cached memory back to the vendor, of one device or (-1) of all and pinned memory.
   */
  int32_t (*mem_empty_cache)(int32_t device);
  /**
   * Statistics of a device.
   */
  int32_t (*mem_stats)(int32_t device, struct FlagosMemoryStats *out);
  /**
   * Peaks start again from the current values.
   */
  int32_t (*mem_reset_peak)(int32_t device);
  /**
   * Accumulated values start again from 0.
   */
  int32_t (*mem_reset_accumulated)(int32_t device);
  /**
   * Free and total bytes of a device.
   */
  int32_t (*mem_info)(int32_t device, size_t *free, size_t *total);
  /**
   * Limits what may be reserved to a fraction, over 0 and up to 1, of the device.
   */
  int32_t (*mem_set_fraction)(int32_t device, double fraction);
  /**
   * The cached segments and their blocks as JSON; free it with `string_free`.
   */
  int32_t (*mem_snapshot_json)(int32_t device, char **out);
  /**
   * Frees a string made by this table. NULL is ignored.
   */
  void (*string_free)(char *string);
  /**
   * The device whose memory contains the address, or -1; not a status.
   */
  int32_t (*mem_device_of)(const void *ptr);
  /**
   * Allocates page-locked host memory. 0 bytes give a NULL `data` and a NULL `block`.
   */
  int32_t (*pinned_alloc)(size_t nbytes, void **data, void **block);
  /**
   * Gives pinned memory back. It is reused after the recorded streams have finished the work queued so far.
   */
  void (*pinned_free)(void *block);
  /**
   * 1 when the address lies in pinned memory, else 0; not a status.
   */
  int32_t (*is_pinned)(const void *ptr);
  /**
   * Notes that work queued on a stream uses the pinned block that the address lies in.
   */
  int32_t (*pinned_record)(const void *ptr, int32_t device, uint64_t stream);
  /**
   * A stream from a set of 32 for each priority (below 0 is high), handed out round robin.
   */
  int32_t (*stream_create)(int32_t device, int32_t priority, uint64_t *stream);
  /**
   * Whether everything queued has finished. Reports a failure of queued work, once.
   */
  int32_t (*stream_query)(int32_t device, uint64_t stream, int32_t *idle);
  /**
   * Waits for everything queued so far. Reports a failure of queued work, once.
   */
  int32_t (*stream_sync)(int32_t device, uint64_t stream);
  /**
   * Waits for everything queued on all streams of the device. Reports a failure of queued work, once.
   */
  int32_t (*device_sync)(int32_t device);
  /**
   * Queues a call of `function(context)`, made on another thread, in order. The function must not throw, nor
   * wait for functions of other streams. Within it a vendor may refuse every call that does not free.
   */
  int32_t (*stream_launch)(int32_t device, uint64_t stream, void (*function)(void*), void *context);
  /**
   * Queues a copy between device, pinned and ordinary memory. Both ranges stay valid until the copy has run.
   * When one side is ordinary memory, or both are the host's, the copy may have run on return.
   */
  int32_t (*copy_async)(int32_t device, uint64_t stream, void *dst, const void *src, size_t nbytes);
  /**
   * The address of the number of queued items that have not finished, over all streams. The address is the
   * same for the life of the process. Load the number with `__ATOMIC_ACQUIRE`: after a 0 host code may use
   * device memory on the host vendor without waiting. On a vendor whose device memory only the device uses
   * the number is always 0.
   */
  const uint64_t *(*pending)(void);
  /**
   * A new event for streams of `device`. Only an event with `timing` has a time.
   */
  int32_t (*event_create)(int32_t device, int32_t timing, void **event);
  /**
   * Destroys an event, recorded or not. NULL is ignored.
   */
  void (*event_destroy)(void *event);
  /**
   * Records the event: it stands for the work queued on the stream so far.
   */
  int32_t (*event_record)(void *event, int32_t device, uint64_t stream);
  /**
   * Lets work queued on the stream from now on start after the work that the event stands for.
   */
  int32_t (*event_wait)(void *event, int32_t device, uint64_t stream);
  /**
   * Whether the work that the event stands for has finished; true before the first record.
   */
  int32_t (*event_query)(void *event, int32_t *done);
  /**
   * Waits for the work that the event stands for.
   */
  int32_t (*event_sync)(void *event);
  /**
   * Milliseconds between two events with timing that have finished.
   */
  int32_t (*event_elapsed)(void *start, void *end, double *milliseconds);
  /**
   * The slot of an operator, such as `aten::add.Tensor`; NULL for an invalid name. Initialises nothing.
   */
  struct FlagosOpSlot *(*op_slot)(const char *qualified_name);
  /**
   * The reason why an operator is blocked; free the text with `string_free`.
   */
  int32_t (*op_blocked_reason)(const char *name, char **out);
  /**
   * Statistics of pinned memory.
   */
  int32_t (*pinned_stats)(struct FlagosPinnedStats *out);
  /**
   * Peaks of pinned memory start again from the current values.
   */
  int32_t (*pinned_reset_peak)(void);
  /**
   * Accumulated values of pinned memory start again from 0.
   */
  int32_t (*pinned_reset_accumulated)(void);
  /**
   * Counts a CPU fallback that is about to happen, or refuses it in strict mode and when the budget is spent.
   */
  int32_t (*op_record_fallback)(const char *name, const char *reason);
  /**
   * Checks a launch against its function (number and sizes of parameters, where the vendor tells them)
   * and prepares it. The function's device has to be the calling thread's in the vendor's own library. Fails with
   * `FLAGOS_UNSUPPORTED` when the vendor in use launches no kernels.
   */
  int32_t (*launch_create)(const struct FlagosLaunchDesc *desc, struct FlagosLaunch **out);
  /**
   * Queues a launch on a stream of the function's device, by its handle in the vendor's own library, with these
   * pointers. Takes no lock and allocates nothing; several threads may run a launch at once.
   */
  int32_t (*launch_run)(const struct FlagosLaunch *launch,
                        uint64_t stream,
                        const uint64_t *pointers,
                        size_t num_pointers);
  /**
   * Frees a launch that no thread runs; queued work is not affected. NULL is ignored.
   */
  void (*launch_free)(struct FlagosLaunch *launch);
  /**
   * Writes the line about who serves a call to stderr. The slot says whether that is wanted
   * (`FLAGOS_FLAG_LOG`).
   */
  void (*op_log_dispatch)(const char *name, const char *backend);
  /**
   * As `mem_alloc`, for callers that keep the address alone: only `mem_free_at` frees such a block.
   */
  int32_t (*mem_alloc_at)(int32_t device, uint64_t stream, size_t nbytes, void **data);
  /**
   * Gives back the block of `mem_alloc_at` that begins at an address, from any thread. 1 when there is
   * one, which a forked child only forgets; else 0; not a status.
   */
  int32_t (*mem_free_at)(void *data);
  /**
   * Notes that work queued on `stream` of the block's device uses the block of `mem_alloc_at` that begins at an
   * address. Other addresses are ignored.
   */
  int32_t (*mem_record_stream_at)(const void *data, uint64_t stream);
  /**
   * Reads a recording, and prepares its launches as `launch_create` does. `num_inputs` tensors are among
   * the arguments of the call, numbers of dtypes are below `num_dtypes`.
   */
  int32_t (*recording_read)(const int64_t *words,
                            size_t num_words,
                            size_t num_inputs,
                            uint32_t num_dtypes,
                            struct FlagosRecording **out);
  /**
   * Frees a recording that nobody runs any more; queued work is not affected. NULL is ignored.
   */
  void (*recording_free)(struct FlagosRecording *recording);
  /**
   * Describes the vendor that serves this process, or would serve it, whose library is loaded if it is one. Opens no
   * device. With a mistake in the configuration, which `init` reports, it is the best vendor present. Fails when the
   * library cannot be loaded.
   */
  int32_t (*vendor)(struct FlagosVendorInfo *out);
  /**
   * The kernels of the vendor that serves this process, or would serve it, as `flagos_kernels.h` has them: a checked
   * table that lives as long as the process. NULL where the vendor has none or cannot be used. Opens no device.
   */
  const FlagosKernels *(*kernels)(void);
  /**
   * A stream as the library of the vendor knows it (`flagos_vendor.h`), for calls of its kernels. Both live as long as
   * the process. `FLAGOS_UNSUPPORTED` when the vendor is no library.
   */
  int32_t (*stream_library)(int32_t device,
                            uint64_t stream,
                            FlagosVendorInstance **instance,
                            FlagosVendorStream **handle);
  /**
   * `FLAGOS_UNSUPPORTED`, and the reason, where the vendor captures no work of streams into graphs.
   */
  int32_t (*graph_supported)(void);
  /**
   * New memory that graphs may share; a number, which nobody gives back.
   */
  int32_t (*graph_memory_create)(uint64_t *memory);
  /**
   * An empty graph.
   */
  int32_t (*graph_create)(struct FlagosGraph **graph);
  /**
   * Begins to capture the work of a stream, not the default one, into an empty graph: until the end it is not run. What
   * captured streams allocate comes from `memory`, or from memory of the graph's own for 0, and stays the graph's until
   * `graph_reset`. `mode` is one of `FLAGOS_CAPTURE_*`. Calls that wait for the device or for captured work fail
   * meanwhile with `FLAGOS_UNSUPPORTED`.
   */
  int32_t (*graph_capture_begin)(struct FlagosGraph *graph,
                                 int32_t device,
                                 uint64_t stream,
                                 uint64_t memory,
                                 int32_t mode);
  /**
   * Ends the capture. After a failure the graph is empty, unless the failure is that another thread began the capture.
   */
  int32_t (*graph_capture_end)(struct FlagosGraph *graph);
  /**
   * Queues all captured work on a stream of the graph's device.
   */
  int32_t (*graph_replay)(struct FlagosGraph *graph, uint64_t stream);
  /**
   * Makes the graph empty; ends its capture if that goes on. Runs that are queued still run.
   */
  int32_t (*graph_reset)(struct FlagosGraph *graph);
  /**
   * The memory that the graph uses.
   */
  int32_t (*graph_memory)(const struct FlagosGraph *graph, uint64_t *memory);
  /**
   * The graph's device, or -1 when it is empty.
   */
  int32_t (*graph_device)(const struct FlagosGraph *graph, int32_t *device);
  /**
   * Resets and destroys a graph. NULL is ignored.
   */
  void (*graph_destroy)(struct FlagosGraph *graph);
  /**
   * Writes one of `FLAGOS_CAPTURE_NONE`, `FLAGOS_CAPTURE_ACTIVE` and `FLAGOS_CAPTURE_INVALID`.
   */
  int32_t (*stream_capture_status)(int32_t device, uint64_t stream, int32_t *capture);
  /**
   * `FLAGOS_UNSUPPORTED`, and the reason, where the vendor shares no device memory between processes.
   */
  int32_t (*memory_sharing)(void);
  /**
   * The key by which other processes of this machine import the allocation of the vendor in which an address of a device
   * lies, a text to be freed with `string_free`; the address's offset in that, and its size. Whoever sends the key keeps
   * the block at the address until every process that imported it has closed it.
   */
  int32_t (*memory_export)(int32_t device,
                           const void *address,
                           char **key,
                           size_t *offset,
                           size_t *nbytes);
  /**
   * Memory of another process, by its key and size, at an address of this one. May be imported again.
   */
  int32_t (*memory_import)(int32_t device, const char *key, size_t nbytes, void **address);
  /**
   * Closes memory that `memory_import` gave, once for each call of that. Waits for the device.
   */
  void (*memory_close)(int32_t device, void *address);
  /**
   * The stream's handle in the vendor's own library, such as an `aclrtStream`, NULL where the vendor has none.
   */
  int32_t (*stream_native)(int32_t device, uint64_t stream, void **handle);
  /**
   * Loads a program (its `nbytes` at `image`) on the device that is the calling thread's in the vendor's own library, or
   * on `device` where the thread has none, for as long as the process lives. Gives the handle of its function of this
   * name, which may be launched with so much dynamic shared memory. `FLAGOS_UNSUPPORTED` when the vendor in use loads
   * no functions.
   */
  int32_t (*function_load)(int32_t device,
                           const void *image,
                           size_t nbytes,
                           const char *name,
                           uint32_t shared_bytes,
                           uint64_t *function);
  /**
   * Notes that work queued on `stream` of `device`, which may be another than the block's, uses the block of
   * `mem_alloc_at` that begins at an address. Other addresses are ignored.
   */
  int32_t (*mem_record_stream_of)(const void *data, int32_t device, uint64_t stream);
  /**
   * As `op_record_fallback`, for a call that the chosen implementation declined and that does not run on the CPU for
   * it: the native kernel of the device serves it.
   */
  int32_t (*op_record_decline)(const char *name, const char *reason);
  /**
   * Has a part of a kernel's call (`FlagosKernelCall::post`) queued on a stream of a library by a second thread, after
   * all that was posted there before; at once while any stream is captured, and on a stream whose handle in the
   * vendor's own library others know. The name of the operator lives as long as the process. Fails with what failed of earlier parts.
   */
  int32_t (*stream_post)(int32_t device,
                         uint64_t stream,
                         const char *name,
                         int32_t (*run)(void *argument, int32_t queues),
                         void *argument);
  /**
   * Waits until everything posted on a stream has been queued, and fails with what failed of it. Other functions for a
   * stream wait too, and fail with what was known to have failed before.
   */
  int32_t (*stream_flush)(int32_t device, uint64_t stream);
  /**
   * `stream_flush` of every stream.
   */
  int32_t (*queues_flush)(void);
  /**
   * How many parts were posted in this process, and how often somebody had to wait for them.
   */
  int32_t (*queues_counts)(uint64_t *posted, uint64_t *waits);
  /**
   * For tests: delays every part by a random time of up to so many microseconds, and has some of those that wait for
   * parts not wait: records of events (1), copies (2), memory that is freed (4), all others (8).
   */
  void (*queues_inject)(uint64_t delay_us, uint32_t unmindful);
} FlagosApi;

#endif  /* FLAGOS_H */
