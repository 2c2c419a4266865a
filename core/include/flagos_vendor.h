/* The interface of a vendor of devices: what a library implements so that flagos runs on its chip.
 * SPDX-License-Identifier: Apache-2.0
 * Generated from core/src/vendors/library/types.rs by `cargo run -p flagos-core --example header`: do not edit. */

#ifndef FLAGOS_VENDOR_H
#define FLAGOS_VENDOR_H

#include <stddef.h>
#include <stdint.h>

/**
 * Whether the struct at `pointer`, which the other side made, has the member: its `struct_size` tells. Nobody reads or
 * writes a member that the other side does not have.
 */
#define FLAGOS_VENDOR_HAS(type, pointer, member) \
  ((pointer)->struct_size >= offsetof(type, member) + sizeof((pointer)->member))

#if defined(_MSC_VER)
#define FLAGOS_VENDOR_EXPORT __declspec(dllexport)
#else
#define FLAGOS_VENDOR_EXPORT __attribute__((visibility("default")))
#endif

/**
 * Version of the interface, major. Host and library must agree on it.
 */
#define FLAGOS_VENDOR_MAJOR 1

/**
 * Version of the interface, minor: raised when members are appended, or bits or reserved slots get a meaning. Host
 * and library of different minor versions work together.
 */
#define FLAGOS_VENDOR_MINOR 3

/**
 * Status: success.
 */
#define FLAGOS_VENDOR_OK 0

/**
 * Status: an argument is wrong.
 */
#define FLAGOS_VENDOR_INVALID_ARGUMENT 1

/**
 * Status: an environment variable or another setting of the vendor is wrong; the text names it.
 */
#define FLAGOS_VENDOR_CONFIG 2

/**
 * Status: the device, or the host for pinned memory, has no memory left for the request.
 */
#define FLAGOS_VENDOR_OUT_OF_MEMORY 3

/**
 * Status: the device, its driver or a piece of queued work failed. The device can still be used.
 */
#define FLAGOS_VENDOR_DEVICE 4

/**
 * Status: not supported on this device or in this context, and nothing has changed.
 */
#define FLAGOS_VENDOR_UNSUPPORTED 6

/**
 * Status: a defect of the library.
 */
#define FLAGOS_VENDOR_INTERNAL 8

/**
 * Status: the device is lost for this process, and every later call for it fails with this status.
 */
#define FLAGOS_VENDOR_DEVICE_LOST 9

/**
 * `FlagosVendor::capabilities`: host code computes on device memory directly. The library counts unfinished items in
 * `FlagosVendorOptions::pending`.
 */
#define FLAGOS_VENDOR_HOST_COMPUTES 1

/**
 * `FlagosVendor::capabilities`: streams have handles of the vendor's own library: `stream_native_handle`.
 */
#define FLAGOS_VENDOR_NATIVE_HANDLES 2

/**
 * `FlagosVendor::capabilities`: streams can be made of handles of the vendor's own library: `stream_external`.
 */
#define FLAGOS_VENDOR_EXTERNAL_STREAMS 4

/**
 * `FlagosVendor::capabilities`: the library tells memory by its address. Every copy is of the kind
 * `FLAGOS_VENDOR_COPY_ANY`, and the host saves the look-up.
 */
#define FLAGOS_VENDOR_TELLS_MEMORY 8

/**
 * `FlagosVendor::capabilities`: the library launches compiled kernels: `module_load`, `module_unload`, `kernel_create`,
 * `kernel_external`, `kernel_destroy`, `kernel_launch` and `memory_device_address`. Goes with
 * `FLAGOS_VENDOR_NATIVE_HANDLES`, because kernels are launched on such handles.
 */
#define FLAGOS_VENDOR_LAUNCHES 16

/**
 * `FlagosVendor::capabilities`: the library captures the work of streams into graphs: `capture_begin`, `capture_status`,
 * `capture_end`, `graph_launch` and `graph_destroy`. Since version 1.1.
 */
#define FLAGOS_VENDOR_CAPTURES 32

/**
 * `FlagosVendor::capabilities`: processes share device memory: `memory_export`, `memory_import`, `memory_close` and
 * `memory_close_all`. Since version 1.2.
 */
#define FLAGOS_VENDOR_SHARES 64

/**
 * `FlagosVendor::capabilities`: a device may address the memory of another one: `device_reaches`. Since version 1.2.
 */
#define FLAGOS_VENDOR_REACHES_PEERS 128

/**
 * `FlagosVendor::capabilities`: `capture_status` tells of captures that other libraries began. For a library without
 * `FLAGOS_VENDOR_CAPTURES`. Since version 1.3.
 */
#define FLAGOS_VENDOR_SEES_CAPTURES 256

/**
 * `capture_begin`: until the end, no thread makes calls that wait for the device or that copy at once.
 */
#define FLAGOS_VENDOR_CAPTURE_GLOBAL 0

/**
 * `capture_begin`: until the end, the thread that calls makes no such calls.
 */
#define FLAGOS_VENDOR_CAPTURE_THREAD_LOCAL 1

/**
 * `capture_begin`: every thread may make such calls, and any may end the capture.
 */
#define FLAGOS_VENDOR_CAPTURE_RELAXED 2

/**
 * `FlagosVendorHost::log`: a failure.
 */
#define FLAGOS_VENDOR_LOG_ERROR 0

/**
 * `FlagosVendorHost::log`: something a user should look at.
 */
#define FLAGOS_VENDOR_LOG_WARNING 1

/**
 * `FlagosVendorHost::log`: something a user may want to know.
 */
#define FLAGOS_VENDOR_LOG_INFO 2

/**
 * `FlagosVendorHost::log`: for the developers of the library.
 */
#define FLAGOS_VENDOR_LOG_DEBUG 3

/**
 * `stream_copy`: the library tells the kind by the addresses (`FLAGOS_VENDOR_TELLS_MEMORY`).
 */
#define FLAGOS_VENDOR_COPY_ANY 0

/**
 * `stream_copy`: from host memory, pinned or ordinary, to memory of the stream's device.
 */
#define FLAGOS_VENDOR_COPY_HOST_TO_DEVICE 1

/**
 * `stream_copy`: from memory of the stream's device to host memory, pinned or ordinary.
 */
#define FLAGOS_VENDOR_COPY_DEVICE_TO_HOST 2

/**
 * `stream_copy`: within the memory of the stream's device.
 */
#define FLAGOS_VENDOR_COPY_DEVICE_TO_DEVICE 3

/**
 * `stream_copy`: memory of another device than the stream's is on one side or on both.
 */
#define FLAGOS_VENDOR_COPY_PEER 4

/**
 * `stream_copy`: both sides are host memory.
 */
#define FLAGOS_VENDOR_COPY_HOST_TO_HOST 5

/**
 * `event_create`: the event notes the time at which it is reached.
 */
#define FLAGOS_VENDOR_EVENT_TIMING 1

/**
 * `FlagosVendorKernelOptions::flags`: all blocks of a launch run at the same time.
 */
#define FLAGOS_VENDOR_LAUNCH_COOPERATIVE 1

/**
 * `FlagosVendorKernelOptions::flags`: a launch may start before the kernel ahead of it in the stream has finished, for
 * which it waits itself.
 */
#define FLAGOS_VENDOR_LAUNCH_DEPENDENT 2

/**
 * `FlagosVendorDescription::serving`: host code computes on device memory, with the framework's CPU kernels.
 */
#define FLAGOS_VENDOR_SERVED_BY_HOST 0

/**
 * `FlagosVendorDescription::serving`: the framework itself computes, on its device type `torch_device_type`.
 */
#define FLAGOS_VENDOR_SERVED_BY_TORCH 1

/**
 * `FlagosVendorDescription::serving`: kernels of the library compute.
 */
#define FLAGOS_VENDOR_SERVED_BY_LIBRARY 2

/**
 * A point in a stream, as the library keeps it. Before the first record it counts as finished.
 */
typedef struct FlagosVendorEvent FlagosVendorEvent;

/**
 * Captured work, as the library keeps it.
 */
typedef struct FlagosVendorGraph FlagosVendorGraph;

/**
 * The opened vendor, as the library keeps it.
 */
typedef struct FlagosVendorInstance FlagosVendorInstance;

/**
 * A function of the device with the options of its launches, as the library keeps it.
 */
typedef struct FlagosVendorKernel FlagosVendorKernel;

/**
 * A program that is loaded for one device, as the library keeps it.
 */
typedef struct FlagosVendorModule FlagosVendorModule;

/**
 * A queue of work of one device, run in order, as the library keeps it.
 */
typedef struct FlagosVendorStream FlagosVendorStream;

/**
 * An environment variable of the vendor.
 */
typedef struct FlagosVendorVariable {
  /**
   * `sizeof(FlagosVendorVariable)` of the library.
   */
  size_t struct_size;
  /**
   * The variable's name, such as `ACME_VISIBLE_DEVICES`.
   */
  const char *name;
  /**
   * What the variable does, in one sentence.
   */
  const char *text;
} FlagosVendorVariable;

/**
 * A library that the vendor needs or uses where it is there.
 */
typedef struct FlagosVendorLibrary {
  /**
   * `sizeof(FlagosVendorLibrary)` of the library.
   */
  size_t struct_size;
  /**
   * The name the dynamic linker finds it by, such as `libacme.so.1`.
   */
  const char *soname;
  /**
   * What it is needed for, in one sentence.
   */
  const char *text;
  /**
   * 1 when the vendor does not work without it, else 0.
   */
  int32_t required;
  /**
   * 0.
   */
  int32_t reserved_word;
} FlagosVendorLibrary;

/**
 * What is special about the vendor, as data. Texts are UTF-8 and end with NUL; a text that says "or NULL" may be NULL.
 * Lists of texts end with NULL, and a NULL list is an empty one. Everything lives as long as the process.
 */
typedef struct FlagosVendorDescription {
  /**
   * `sizeof(FlagosVendorDescription)` of the library: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * The name that selects the vendor (`FLAGOS_VENDOR`): a lower-case letter, then letters, digits and `_`, at most
   * 31 of all.
   */
  const char *name;
  /**
   * The version of the library, for people.
   */
  const char *version;
  /**
   * Other names of the vendor, written as `name` is.
   */
  const char *const *aliases;
  /**
   * `num_variables` environment variables, each `struct_size` of the first bytes long.
   */
  const struct FlagosVendorVariable *variables;
  /**
   * The number of `variables`.
   */
  size_t num_variables;
  /**
   * `num_libraries` libraries that `flagos doctor` looks for, each `struct_size` of the first bytes long.
   */
  const struct FlagosVendorLibrary *libraries;
  /**
   * The number of `libraries`.
   */
  size_t num_libraries;
  /**
   * Texts that mean, in an error of any library over this vendor, that the device is lost.
   */
  const char *const *device_lost;
  /**
   * The collective engine for this vendor's memory, such as `nccl`, or NULL.
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
   * The framework's own device type, by the framework's name: required by `FLAGOS_VENDOR_SERVED_BY_TORCH`, else NULL.
   */
  const char *torch_device_type;
  /**
   * How a framework computes on the devices: one of `FLAGOS_VENDOR_SERVED_BY_*`.
   */
  int32_t serving;
  /**
   * The `DLDeviceType` of the memory: 1 for memory of the host, 12 (`kDLExtDev`) for a vendor without one of its own.
   */
  int32_t dlpack_device_type;
  /**
   * NULL.
   */
  const void *reserved[16];
} FlagosVendorDescription;

/**
 * What the host gives to the library when it opens the vendor. Valid during the call only.
 */
typedef struct FlagosVendorOptions {
  /**
   * `sizeof(FlagosVendorOptions)` of the host: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * With `FLAGOS_VENDOR_HOST_COMPUTES` the number of items queued and not finished, over all streams; else NULL.
   * The library adds 1 before an item is queued, and subtracts 1 with release order after its effects are there.
   * Lives as long as the process.
   */
  uint64_t *pending;
  /**
   * NULL.
   */
  const void *reserved[8];
} FlagosVendorOptions;

/**
 * The properties of a device.
 */
typedef struct FlagosVendorProperties {
  /**
   * `sizeof(FlagosVendorProperties)` of the host, which the library leaves alone: it writes no member beyond it.
   */
  size_t struct_size;
  /**
   * Product name, NUL-terminated UTF-8.
   */
  char name[256];
  /**
   * Memory of the device in bytes.
   */
  uint64_t total_memory;
  /**
   * Multiprocessors, at least 1.
   */
  int32_t multi_processor_count;
  /**
   * Version of the device's architecture, major.
   */
  int32_t major;
  /**
   * Version of the device's architecture, minor.
   */
  int32_t minor;
  /**
   * 0.
   */
  int32_t reserved_word;
} FlagosVendorProperties;

/**
 * The memory of a device, in bytes.
 */
typedef struct FlagosVendorMemory {
  /**
   * `sizeof(FlagosVendorMemory)` of the host, which the library leaves alone: it writes no member beyond it.
   */
  size_t struct_size;
  /**
   * Bytes that are not allocated.
   */
  uint64_t free;
  /**
   * All bytes of the device.
   */
  uint64_t total;
} FlagosVendorMemory;

/**
 * A function queued on a stream.
 */
typedef void (*FlagosVendorHostFunction)(void *context);

/**
 * A tensor without its address, of which the library makes the descriptor that a kernel takes, 128 bytes long.
 * Dimensions begin with the one whose elements lie side by side.
 */
typedef struct FlagosVendorTensorMap {
  /**
   * `sizeof(FlagosVendorTensorMap)` of the host: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * The vendor's number of the elements' type.
   */
  uint32_t data_type;
  /**
   * Dimensions, 1 to 5.
   */
  uint32_t rank;
  /**
   * Elements along each dimension.
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
   * The vendor's number of the order in which a block lies in shared memory.
   */
  uint32_t swizzle;
  /**
   * 1: elements outside the tensor read as NaN; 0: as zero.
   */
  uint32_t fills_with_nan;
  /**
   * 0.
   */
  uint32_t reserved_word;
} FlagosVendorTensorMap;

/**
 * A parameter of a kernel, without its value.
 */
typedef struct FlagosVendorParameter {
  /**
   * `sizeof(FlagosVendorParameter)` of the host: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * NULL, or the tensor whose descriptor is the parameter.
   */
  const struct FlagosVendorTensorMap *map;
  /**
   * Bytes: 1, 2, 4 or 8; 128 for a descriptor.
   */
  uint32_t size;
  /**
   * 0.
   */
  uint32_t reserved_word;
} FlagosVendorParameter;

/**
 * How a kernel is launched, apart from grid, stream and the values of parameters. Valid during the call only.
 */
typedef struct FlagosVendorKernelOptions {
  /**
   * `sizeof(FlagosVendorKernelOptions)` of the host: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * Threads of a block, along each axis.
   */
  uint32_t block[3];
  /**
   * Blocks of a cluster, along each axis, spread over the device; 1, 1, 1 for no clusters.
   */
  uint32_t cluster[3];
  /**
   * Dynamic shared memory of a block, in bytes.
   */
  uint32_t shared_bytes;
  /**
   * Bits `FLAGOS_VENDOR_LAUNCH_*`.
   */
  uint32_t flags;
  /**
   * `num_parameters` parameters, each `struct_size` of the first bytes long.
   */
  const struct FlagosVendorParameter *parameters;
  /**
   * The number of `parameters`, at most 512.
   */
  size_t num_parameters;
  /**
   * NULL.
   */
  const void *reserved[8];
} FlagosVendorKernelOptions;

/**
 * Device memory as other processes know it.
 */
typedef struct FlagosVendorExported {
  /**
   * Size of this struct in the host.
   */
  size_t struct_size;
  /**
   * The key of an allocation, by which other processes import the whole of it: printable ASCII without spaces, then a NUL.
   */
  char key[256];
  /**
   * The bytes from the beginning of the allocation to the address that was exported.
   */
  uint64_t offset;
  /**
   * The bytes of the allocation.
   */
  uint64_t nbytes;
} FlagosVendorExported;

/**
 * Something that a library takes for granted of a library beneath it.
 */
typedef struct FlagosVendorDeclaration {
  /**
   * Size of this struct in the library.
   */
  size_t struct_size;
  /**
   * The function, number or structure, as the library beneath calls it.
   */
  const char *name;
  /**
   * How it is known, as a letter: `B`, one program shows it; `C`, it is taken to be as that of another library.
   */
  int32_t grade;
  /**
   * 0.
   */
  int32_t reserved_word;
} FlagosVendorDeclaration;

/**
 * The table of a library. Lives, and stays as it is, as long as the process: a library is never closed.
 *
 * Every function may be called from any thread, and lets no exception out. A function returning `int32_t` returns
 * one of `FLAGOS_VENDOR_OK`, ... unless its comment says otherwise; after a failure `last_error` has the text. Outputs
 * are never NULL, and are written on success only. The host has checked that devices exist, that sizes are above 0, and
 * that streams and events are of one instance.
 */
typedef struct FlagosVendor {
  /**
   * `sizeof(FlagosVendor)` of the library: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * `FLAGOS_VENDOR_MAJOR` of the library.
   */
  uint32_t major;
  /**
   * `FLAGOS_VENDOR_MINOR` of the library.
   */
  uint32_t minor;
  /**
   * Bits `FLAGOS_VENDOR_HOST_COMPUTES`, ... of what the library can. Bits without a meaning in its version are 0.
   */
  uint64_t capabilities;
  /**
   * What is special about the vendor.
   */
  const struct FlagosVendorDescription *description;
  /**
   * The text of the last failure on this thread, UTF-8; valid until the thread's next call. NULL for none.
   */
  const char *(*last_error)(void);
  /**
   * The number of devices the vendor would show, at least 1; otherwise fails, and the text is the reason why the
   * vendor cannot be used here. Initialises nothing that a later fork would break.
   */
  int32_t (*probe)(int32_t *device_count);
  /**
   * Opens the vendor. May be called again, for another instance.
   */
  int32_t (*open)(const struct FlagosVendorOptions *options, struct FlagosVendorInstance **instance);
  /**
   * Gives an instance back, of which the host has destroyed all streams and events. Work that is still queued runs.
   * Does not wait, because work running on a stream may call it.
   */
  void (*close)(struct FlagosVendorInstance *instance);
  /**
   * Called in a forked child, where no thread of the library exists any more. The host calls nothing else there.
   */
  void (*after_fork_in_child)(struct FlagosVendorInstance *instance);
  /**
   * 1 when the calling thread runs work of a stream, where waiting for a stream would deadlock, else 0; not a status.
   */
  int32_t (*in_stream_work)(struct FlagosVendorInstance *instance);
  /**
   * The number of devices, the one that `probe` writes. They are numbered from 0.
   */
  int32_t (*device_count)(struct FlagosVendorInstance *instance, int32_t *count);
  /**
   * Describes a device.
   */
  int32_t (*device_properties)(struct FlagosVendorInstance *instance,
                               int32_t device,
                               struct FlagosVendorProperties *properties);
  /**
   * Free and total memory of a device.
   */
  int32_t (*device_memory)(struct FlagosVendorInstance *instance,
                           int32_t device,
                           struct FlagosVendorMemory *memory);
  /**
   * Waits for all work queued on the device so far. Reports a failure of queued work that has not been reported, and
   * forgets all of them. `FLAGOS_VENDOR_UNSUPPORTED` in work running on a stream, unless nothing is queued.
   */
  int32_t (*device_sync)(struct FlagosVendorInstance *instance, int32_t device);
  /**
   * Waits as `device_sync` does, and leaves failures to be reported by a later call. Fails only where waiting is
   * impossible.
   */
  int32_t (*device_quiesce)(struct FlagosVendorInstance *instance, int32_t device);
  /**
   * Allocates device memory, aligned to 512 bytes, with any contents. It overlaps no memory that the host still has,
   * of any device or pinned.
   */
  int32_t (*memory_alloc)(struct FlagosVendorInstance *instance,
                          int32_t device,
                          size_t nbytes,
                          void **address);
  /**
   * Gives device memory back, with the size of its allocation. No queued work uses it.
   */
  int32_t (*memory_free)(struct FlagosVendorInstance *instance,
                         int32_t device,
                         void *address,
                         size_t nbytes);
  /**
   * Allocates page-locked host memory that every device can copy from and to, aligned to 512 bytes. It overlaps no memory
   * that the host still has, of any device or pinned.
   */
  int32_t (*pinned_alloc)(struct FlagosVendorInstance *instance, size_t nbytes, void **address);
  /**
   * Gives pinned memory back, with the size of its allocation. No queued work uses it.
   */
  int32_t (*pinned_free)(struct FlagosVendorInstance *instance, void *address, size_t nbytes);
  /**
   * The default stream of a device: the same one at each call, never destroyed by the host.
   */
  int32_t (*stream_default)(struct FlagosVendorInstance *instance,
                            int32_t device,
                            struct FlagosVendorStream **stream);
  /**
   * A new stream, with a handle of its own. A lower `priority` is more urgent, 0 is normal; the library clamps it to
   * what it has.
   */
  int32_t (*stream_create)(struct FlagosVendorInstance *instance,
                           int32_t device,
                           int32_t priority,
                           struct FlagosVendorStream **stream);
  /**
   * Destroys a stream. Its queued work still runs, and `device_sync` waits for it. Does not wait itself.
   */
  int32_t (*stream_destroy)(struct FlagosVendorStream *stream);
  /**
   * Writes whether everything queued has finished: 1 or 0. Reports a failure of queued work, once.
   */
  int32_t (*stream_query)(struct FlagosVendorStream *stream, int32_t *idle);
  /**
   * 1 when everything queued has finished, else 0; not a status. Reports no failure.
   */
  int32_t (*stream_is_idle)(struct FlagosVendorStream *stream);
  /**
   * Waits for everything queued so far, not at all when the stream is idle. Reports a failure of queued work, once.
   * `FLAGOS_VENDOR_UNSUPPORTED` in work running on a stream, unless the stream is idle.
   */
  int32_t (*stream_sync)(struct FlagosVendorStream *stream);
  /**
   * Queues a copy; `kind` is one of `FLAGOS_VENDOR_COPY_*`. Where one side is ordinary memory, or both are the
   * host's, the library may wait for the copy.
   */
  int32_t (*stream_copy)(struct FlagosVendorStream *stream,
                         void *to,
                         const void *from,
                         size_t nbytes,
                         int32_t kind);
  /**
   * Queues a call of `function(context)` on a thread of the library. Once this has succeeded the call happens, also
   * after earlier work failed.
   */
  int32_t (*stream_host_function)(struct FlagosVendorStream *stream,
                                  FlagosVendorHostFunction function,
                                  void *context);
  /**
   * A new event, with a handle of its own, for streams of a device; `flags` are bits `FLAGOS_VENDOR_EVENT_*`.
   */
  int32_t (*event_create)(struct FlagosVendorInstance *instance,
                          int32_t device,
                          uint32_t flags,
                          struct FlagosVendorEvent **event);
  /**
   * Destroys an event, which streams may still wait for, or have to reach.
   */
  int32_t (*event_destroy)(struct FlagosVendorEvent *event);
  /**
   * Records an event of the stream's device: from now on it stands for the work queued so far.
   */
  int32_t (*event_record)(struct FlagosVendorEvent *event, struct FlagosVendorStream *stream);
  /**
   * Lets work queued on the stream from now on start after the work that the event stands for now. The event may be of
   * another device. An event that was never recorded is no constraint.
   */
  int32_t (*event_wait)(struct FlagosVendorEvent *event, struct FlagosVendorStream *stream);
  /**
   * Writes whether the recorded work has finished: 1 or 0. Reports a failure of that work.
   */
  int32_t (*event_query)(struct FlagosVendorEvent *event, int32_t *done);
  /**
   * Waits for the recorded work. Reports a failure of that work. `FLAGOS_VENDOR_UNSUPPORTED` in work running on a stream,
   * unless the event is finished.
   */
  int32_t (*event_sync)(struct FlagosVendorEvent *event);
  /**
   * Milliseconds between two events, negative where `end` was first. `FLAGOS_VENDOR_INVALID_ARGUMENT` unless both have
   * timing, are recorded and finished.
   */
  int32_t (*event_elapsed)(struct FlagosVendorEvent *start,
                           struct FlagosVendorEvent *end,
                           double *milliseconds);
  /**
   * With `FLAGOS_VENDOR_NATIVE_HANDLES` the stream's handle in the vendor's own library, which lives as long as the
   * stream; else NULL.
   */
  int32_t (*stream_native_handle)(struct FlagosVendorStream *stream, void **handle);
  /**
   * With `FLAGOS_VENDOR_EXTERNAL_STREAMS` a stream over a handle of the vendor's own library, which the user made on the
   * device, keeps alive, and destroys; NULL is the default stream. `stream_destroy` leaves the handle alone. Else NULL.
   */
  int32_t (*stream_external)(struct FlagosVendorInstance *instance,
                             int32_t device,
                             void *handle,
                             struct FlagosVendorStream **stream);
  /**
   * With `FLAGOS_VENDOR_LAUNCHES` loads a program of `nbytes` in a format of the vendor, which the library copies, for a
   * device; else NULL, as are all functions below.
   */
  int32_t (*module_load)(struct FlagosVendorInstance *instance,
                         int32_t device,
                         const void *image,
                         size_t nbytes,
                         struct FlagosVendorModule **module);
  /**
   * Gives a module back, of which the host has destroyed all kernels. No queued work uses it. May be called by work
   * running on a stream.
   */
  int32_t (*module_unload)(struct FlagosVendorModule *module);
  /**
   * A kernel of the module's function of this name. `FLAGOS_VENDOR_INVALID_ARGUMENT` when there is none, when the
   * parameters are not those of the function, as far as the vendor knows them, or when the options exceed a limit;
   * `FLAGOS_VENDOR_UNSUPPORTED` for options that the vendor does not have.
   */
  int32_t (*kernel_create)(struct FlagosVendorModule *module,
                           const char *name,
                           const struct FlagosVendorKernelOptions *options,
                           struct FlagosVendorKernel **kernel);
  /**
   * A kernel of a function that the user has loaded by the vendor's own library, whose handle this is: on the device that
   * is current there on this thread. The user keeps it loaded. Fails as `kernel_create`.
   */
  int32_t (*kernel_external)(struct FlagosVendorInstance *instance,
                             void *function,
                             const struct FlagosVendorKernelOptions *options,
                             struct FlagosVendorKernel **kernel);
  /**
   * Gives a kernel back. No queued work uses it. May be called by work running on a stream.
   */
  int32_t (*kernel_destroy)(struct FlagosVendorKernel *kernel);
  /**
   * Queues a kernel on a stream of its device, by the stream's handle in the vendor's own library. `grid` has the number
   * of blocks along each of three axes, counted singly and not in clusters. `words` has a word for each parameter: a
   * number in its lowest bytes, an address, and for a descriptor the address of the tensor. Both are valid during the
   * call only.
   */
  int32_t (*kernel_launch)(struct FlagosVendorKernel *kernel,
                           void *stream,
                           const uint32_t *grid,
                           const uint64_t *words);
  /**
   * Writes the address by which kernels of the current device reach this memory, and NULL when they do not.
   */
  int32_t (*memory_device_address)(struct FlagosVendorInstance *instance,
                                   void *address,
                                   void **device_address);
  /**
   * With `FLAGOS_VENDOR_CAPTURES` begins a capture; else NULL, as are all functions below. Until its end, work queued on
   * the stream is not run but becomes part of a graph, and memory that it uses stays the graph's. A stream that waits
   * for an event recorded in the capture joins it. `mode` is one of `FLAGOS_VENDOR_CAPTURE_*`. Meanwhile these fail with
   * `FLAGOS_VENDOR_UNSUPPORTED`, and change nothing: waiting for the device, a captured stream or an event recorded in
   * the capture, asking whether one of the latter two has finished, and on captured streams copies of ordinary memory and
   * `stream_host_function`.
   */
  int32_t (*capture_begin)(struct FlagosVendorStream *stream, int32_t mode);
  /**
   * With `FLAGOS_VENDOR_CAPTURES` or `FLAGOS_VENDOR_SEES_CAPTURES` writes the number of the capture that the stream belongs
   * to, the same for all its streams and another one for each
   * capture, 0 for none; and 1 while the capture is valid, or 0 when something has happened that it forbids.
   */
  int32_t (*capture_status)(struct FlagosVendorStream *stream, uint64_t *capture, int32_t *valid);
  /**
   * Ends the capture that began on this stream. It is over after a failure too, unless the failure is that another thread
   * began it. Fails when streams that joined have not come back, by an event for which this stream waits.
   */
  int32_t (*capture_end)(struct FlagosVendorStream *stream, struct FlagosVendorGraph **graph);
  /**
   * Queues a run of the graph on a stream of its device, which is not captured.
   */
  int32_t (*graph_launch)(struct FlagosVendorGraph *graph, struct FlagosVendorStream *stream);
  /**
   * Gives a graph back. Queued runs still run. Does not wait itself.
   */
  int32_t (*graph_destroy)(struct FlagosVendorGraph *graph);
  /**
   * With `FLAGOS_VENDOR_REACHES_PEERS` writes 1 when kernels of `device` address the memory of `peer`, another device, and
   * 0 when they do not; else NULL.
   */
  int32_t (*device_reaches)(struct FlagosVendorInstance *instance,
                            int32_t device,
                            int32_t peer,
                            int32_t *reaches);
  /**
   * With `FLAGOS_VENDOR_SHARES` describes the allocation of `memory_alloc` in which an address of `device` lies, for other
   * processes of the machine; else NULL, as are the three functions below. The allocation stays until every process that
   * imported it has closed it.
   */
  int32_t (*memory_export)(struct FlagosVendorInstance *instance,
                           int32_t device,
                           const void *address,
                           struct FlagosVendorExported *exported);
  /**
   * Writes the address, in this process, of the allocation of another process that has this key and this many bytes. The
   * same key again gives the same address, and each import is closed.
   */
  int32_t (*memory_import)(struct FlagosVendorInstance *instance,
                           int32_t device,
                           const char *key,
                           size_t nbytes,
                           void **address);
  /**
   * Closes an import, after waiting for the device, whose queued work may use it.
   */
  int32_t (*memory_close)(struct FlagosVendorInstance *instance, int32_t device, void *address);
  /**
   * Closes every import that is left, when the process ends. `memory_close` does nothing afterwards.
   */
  int32_t (*memory_close_all)(struct FlagosVendorInstance *instance);
  /**
   * The bytes by which kernels may read beyond the end of a tensor's memory, which the host keeps within the tensor's
   * allocation; NULL for none. Since version 1.2.
   */
  size_t (*memory_padding)(struct FlagosVendorInstance *instance);
  /**
   * Whether a capability of the library, one of its bits, can be used on this machine: `FLAGOS_VENDOR_UNSUPPORTED`, with the
   * reason as the text, where a library beneath it is too old. NULL: every one can. Since version 1.3.
   */
  int32_t (*capability_check)(struct FlagosVendorInstance *instance, uint64_t capability);
  /**
   * What the library takes for granted of a library beneath it, whose header nobody publishes: `num_declarations`
   * structs, each as long as the first says; NULL for nothing. `flagos vendor check` tries each out. Since version 1.3.
   */
  const struct FlagosVendorDeclaration *declarations;
  /**
   * How many there are, at most 256.
   */
  size_t num_declarations;
  /**
   * Tries a declaration out on the first device, where no vendor is open. Writes what it shows, as UTF-8 and a NUL,
   * into `shown`, which has room for `nbytes`. Fails where it is wrong, with the finding as its text. A wrong
   * declaration may end the process. NULL without declarations.
   */
  int32_t (*declaration_try)(size_t index, char *shown, size_t nbytes);
  /**
   * NULL.
   */
  const void *reserved[17];
} FlagosVendor;

/**
 * What the host gives to the library when it asks for a table; the versions are those of the table's interface. Lives as
 * long as the process.
 */
typedef struct FlagosVendorHost {
  /**
   * `sizeof(FlagosVendorHost)` of the host: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * The oldest major version that the host takes.
   */
  uint32_t oldest_major;
  /**
   * The newest major version that the host takes.
   */
  uint32_t newest_major;
  /**
   * The minor version of `newest_major` that the host was compiled with.
   */
  uint32_t newest_minor;
  /**
   * 0.
   */
  uint32_t reserved_word;
  /**
   * Writes a line into the host's log. `level` is one of `FLAGOS_VENDOR_LOG_*`, `text` UTF-8. May be called from
   * every thread, except in a forked child.
   */
  void (*log)(int32_t level, const char *text);
  /**
   * NULL.
   */
  const void *reserved[8];
} FlagosVendorHost;

/**
 * The one function that a library exports, named `flagos_vendor`. Returns its table, of a major version that the host
 * takes, or NULL, and then writes the reason (static text). Initialises nothing, and may be called again.
 */
typedef const struct FlagosVendor *(*FlagosVendorEntry)(const struct FlagosVendorHost *host,
                                                        const char **reason);

#endif  /* FLAGOS_VENDOR_H */

#if defined(__cplusplus)
extern "C"
#endif
FLAGOS_VENDOR_EXPORT const FlagosVendor *flagos_vendor(const FlagosVendorHost *host, const char **reason);
