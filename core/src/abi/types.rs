//! The types of `include/flagos.h`, which is generated from this file.

use std::ffi::{c_char, c_void};

use crate::vendors::library::{FlagosKernels, FlagosVendorInstance, FlagosVendorStream};

/// Version of the table's layout. Fields are only ever appended; anything else raises this number.
pub const FLAGOS_ABI_VERSION: u32 = 1;

/// Status: success.
pub const FLAGOS_OK: i32 = 0;

/// Status: an argument is out of range or a handle is not alive.
pub const FLAGOS_INVALID_ARGUMENT: i32 = 1;

/// Status: the configuration is wrong (file, environment or API); the message has file and line.
pub const FLAGOS_CONFIG: i32 = 2;

/// Status: no memory left; the message has a table of the memory in use.
pub const FLAGOS_OUT_OF_MEMORY: i32 = 3;

/// Status: the device or a piece of queued work failed.
pub const FLAGOS_DEVICE: i32 = 4;

/// Status: `init` has not succeeded in this process.
pub const FLAGOS_NOT_INITIALIZED: i32 = 5;

/// Status: not supported by this vendor or in this context.
pub const FLAGOS_UNSUPPORTED: i32 = 6;

/// Status: the process is a forked child of one that had initialised.
pub const FLAGOS_FORKED: i32 = 7;

/// Status: a defect in flagos, such as a caught panic.
pub const FLAGOS_INTERNAL: i32 = 8;

/// `FlagosOpSlot::route`: the adapter's own native path.
pub const FLAGOS_ROUTE_NATIVE: u32 = 0;

/// `FlagosOpSlot::route`: an object registered through the API, found by `impl_token`.
pub const FLAGOS_ROUTE_FOREIGN: u32 = 1;

/// `FlagosOpSlot::route`: no implementation is usable; raise the text of `op_blocked_reason`.
pub const FLAGOS_ROUTE_BLOCKED: u32 = 2;

/// `FlagosOpSlot::route`: the adapter's native path on the CPU, with copies where device memory is not the host's.
pub const FLAGOS_ROUTE_CPU_FALLBACK: u32 = 3;

/// `FlagosOpSlot::flags`: log this dispatch.
pub const FLAGOS_FLAG_LOG: u32 = 1;

/// `FlagosLaunchDesc::flags`: every block of the grid runs at the same time.
pub const FLAGOS_LAUNCH_COOPERATIVE: u32 = 1;

/// `FlagosLaunchDesc::flags`: programmatic dependent launch: the kernel may begin before the kernel ahead
/// of it in the stream has ended.
pub const FLAGOS_LAUNCH_PDL: u32 = 2;

/// The properties of a device.
#[repr(C)]
pub struct FlagosDeviceProperties {
    /// Product name, NUL-terminated UTF-8.
    pub name: [c_char; 256],
    /// Vendor name as in `FLAGOS_VENDOR`, NUL-terminated.
    pub vendor: [c_char; 32],
    /// Memory of the device in bytes.
    pub total_memory: u64,
    /// Multiprocessors; cores on the host.
    pub multi_processor_count: i32,
    /// Compute capability, major.
    pub major: i32,
    /// Compute capability, minor.
    pub minor: i32,
}

/// What is special about the vendor, as data. Texts are UTF-8, end with NUL, and live as long as the process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FlagosVendorInfo {
    /// `sizeof(FlagosVendorInfo)` of the caller, which the core leaves alone: it writes no member beyond it.
    pub struct_size: usize,
    /// The vendor's name as in `FLAGOS_VENDOR`.
    pub name: *const c_char,
    /// The device type of the framework that computes on the devices; NULL unless `serving` is
    /// `FLAGOS_VENDOR_SERVED_BY_TORCH`.
    pub torch_device_type: *const c_char,
    /// The collective engine for the vendor's memory, or NULL.
    pub collective_engine: *const c_char,
    /// The name of the vendor's Triton backend, or NULL.
    pub triton_backend: *const c_char,
    /// The name of the vendor in FlagGems, or NULL.
    pub flaggems_vendor: *const c_char,
    /// How a framework computes on the devices: one of `FLAGOS_VENDOR_SERVED_BY_*` of `flagos_vendor.h`.
    pub serving: i32,
    /// The `DLDeviceType` of device memory.
    pub dlpack_device_type: i32,
}

/// One statistic, as torch's `Stat`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlagosStat {
    /// Value now.
    pub current: i64,
    /// Highest value since `mem_reset_peak`.
    pub peak: i64,
    /// Sum of increases since `mem_reset_accumulated`.
    pub allocated: i64,
    /// Sum of decreases since `mem_reset_accumulated`.
    pub freed: i64,
}

/// A statistic over both pools and for each, in the order of torch's `StatType`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlagosStatArray {
    /// Both pools.
    pub all: FlagosStat,
    /// Blocks of at most 1 MiB.
    pub small_pool: FlagosStat,
    /// Larger blocks.
    pub large_pool: FlagosStat,
}

/// Allocator statistics of one device, with the names and meanings of torch's `DeviceStats`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlagosMemoryStats {
    /// Count: allocations handed to callers.
    pub allocation: FlagosStatArray,
    /// Count: segments obtained from the vendor.
    pub segment: FlagosStatArray,
    /// Count: blocks allocated or waiting for another stream.
    pub active: FlagosStatArray,
    /// Count: free blocks that share their segment with others.
    pub inactive_split: FlagosStatArray,
    /// Bytes in `allocation`.
    pub allocated_bytes: FlagosStatArray,
    /// Bytes in `segment`.
    pub reserved_bytes: FlagosStatArray,
    /// Bytes in `active`.
    pub active_bytes: FlagosStatArray,
    /// Bytes in `inactive_split`.
    pub inactive_split_bytes: FlagosStatArray,
    /// Bytes callers asked for, before rounding.
    pub requested_bytes: FlagosStatArray,
    /// Vendor allocations that succeeded only after cached memory was released.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors returned.
    pub num_ooms: i64,
    /// Times every stream of the device was waited for.
    pub num_sync_all_streams: i64,
    /// Calls to the vendor's allocation function.
    pub num_device_alloc: i64,
    /// Calls to the vendor's free function.
    pub num_device_free: i64,
}

/// The duration of calls, in microseconds.
#[repr(C)]
pub struct FlagosDurationStat {
    /// The sum over all calls.
    pub total: i64,
    /// The longest call.
    pub max: i64,
    /// The shortest call.
    pub min: i64,
    /// The number of calls.
    pub count: i64,
}

/// The statistics of pinned memory. Sizes are those of blocks, which are powers of two.
#[repr(C)]
pub struct FlagosPinnedStats {
    /// Count: blocks handed to callers, or waiting for a stream that uses them.
    pub active_requests: FlagosStat,
    /// Bytes in `active_requests`.
    pub active_bytes: FlagosStat,
    /// Count: blocks obtained from the vendor.
    pub allocations: FlagosStat,
    /// Bytes in `allocations`.
    pub allocated_bytes: FlagosStat,
    /// Time the vendor took to pin memory.
    pub host_alloc_time: FlagosDurationStat,
    /// Time the vendor took to unpin memory.
    pub host_free_time: FlagosDurationStat,
    /// Blocks obtained from the vendor so far, by log2 of their size.
    pub bucket_allocation: [i64; 64],
}

/// The slot that an operator's dispatch reads. Each operator has one, which is never moved and never freed.
/// Every field is shared between threads: access it with the `__atomic` builtins only
/// (`__atomic_load_n(&slot->route, __ATOMIC_ACQUIRE)`, `__atomic_fetch_add(&slot->calls, 1, __ATOMIC_RELAXED)`).
/// Load `route` first and `impl_token` after it.
#[repr(C, align(64))]
pub struct FlagosOpSlot {
    /// Dispatches, counted by the adapter.
    pub calls: u64,
    /// Fallbacks to the reference implementation.
    pub fallbacks: u64,
    /// One of `FLAGOS_ROUTE_*`.
    pub route: u32,
    /// Bits `FLAGOS_FLAG_*`.
    pub flags: u32,
    /// The token of the foreign implementation when `route` is `FLAGOS_ROUTE_FOREIGN`.
    pub impl_token: u64,
}

/// A tensor as the vendor's copy engine takes it, without its address. Dimensions begin with the one whose
/// elements lie side by side.
#[repr(C)]
pub struct FlagosTensorMap {
    /// The vendor's number of the elements' type, such as a `CUtensorMapDataType`.
    pub data_type: u32,
    /// Dimensions, 1 to 5.
    pub rank: u32,
    /// Elements along each.
    pub shape: [u64; 5],
    /// Bytes from one element to the next along each dimension but the first.
    pub strides: [u64; 5],
    /// Elements of a block along each dimension.
    pub block: [u32; 5],
    /// The vendor's number of the order of a block in shared memory, such as a `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// 1: elements outside the tensor read as NaN; 0: as zero.
    pub fills_with_nan: u32,
}

/// One parameter of a kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagosLaunchParam {
    /// Bytes: 1, 2, 4 or 8. A pointer has 8.
    pub size: u32,
    /// The index of the pointer given to `launch_run` that the parameter is derived from; -1: none.
    pub pointer: i32,
    /// The parameter's bits, zero- or sign-extended; for a pointer, the offset in bytes from the given one.
    pub value: u64,
    /// NULL, or the tensor whose map of 128 bytes is the parameter; the pointer is the tensor's address.
    pub map: *const FlagosTensorMap,
}

/// A kernel launch that is repeated with other pointers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FlagosLaunchDesc {
    /// The function's handle in the vendor's own library, such as a `CUfunction`: loaded on the device that is current
    /// there, it stays loaded as long as the launch is run.
    pub function: u64,
    /// Blocks along each axis, counted singly; with clusters a multiple of the cluster's size.
    pub grid: [u32; 3],
    /// Threads of a block, along each axis.
    pub block: [u32; 3],
    /// Blocks of a cluster; 1, 1, 1 for none. Clusters are spread over the device, as Triton has them.
    pub cluster: [u32; 3],
    /// Dynamic shared memory in bytes. More than 48 KiB must be allowed by the loaded function.
    pub shared_bytes: u32,
    /// Bits `FLAGOS_LAUNCH_*`.
    pub flags: u32,
    /// Every parameter in order.
    pub params: *const FlagosLaunchParam,
    /// The number of parameters.
    pub num_params: usize,
}

/// `FlagosStep::kind`: a launch of a kernel.
pub const FLAGOS_STEP_LAUNCH: u32 = 0;
/// `FlagosStep::kind`: every element of `target` becomes the number.
pub const FLAGOS_STEP_FILL: u32 = 1;
/// `FlagosStep::kind`: `target` becomes a copy of `source`.
pub const FLAGOS_STEP_COPY: u32 = 2;

/// `FlagosStep::number_kind`: `integer`.
pub const FLAGOS_NUMBER_INTEGER: u32 = 0;
/// `FlagosStep::number_kind`: `real`.
pub const FLAGOS_NUMBER_DOUBLE: u32 = 1;
/// `FlagosStep::number_kind`: a boolean, 0 or 1 in `integer`.
pub const FLAGOS_NUMBER_BOOL: u32 = 2;

/// Memory that a recorded call allocates.
#[repr(C)]
pub struct FlagosBlock {
    /// Bytes.
    pub nbytes: i64,
    /// 1: some result lies in it.
    pub returned: u32,
}

/// A tensor in a recording.
#[repr(C)]
pub struct FlagosPlace {
    /// `i`: the memory of the i-th tensor among the arguments; `-1 - k`: the k-th block.
    pub memory: i64,
    /// Bytes from the argument's first element, or from the beginning of the block.
    pub offset: i64,
    /// The framework's number of the dtype.
    pub dtype: u32,
    /// Dimensions.
    pub rank: u32,
    /// Elements along each dimension.
    pub sizes: *const i64,
    /// Elements from one index to the next along each dimension.
    pub strides: *const i64,
}

/// A piece of work of a recorded call.
#[repr(C)]
pub struct FlagosStep {
    /// One of `FLAGOS_STEP_*`, which says which of the following fields mean something.
    pub kind: u32,
    /// The launch, to be run with the addresses of these memories.
    pub launch: *const FlagosLaunch,
    /// As in `FlagosPlace`.
    pub memories: *const i64,
    /// How many there are.
    pub num_memories: usize,
    /// The tensor that is written.
    pub target: FlagosPlace,
    /// The tensor that is read.
    pub source: FlagosPlace,
    /// One of `FLAGOS_NUMBER_*`.
    pub number_kind: u32,
    /// An integer or a boolean.
    pub integer: i64,
    /// A floating-point number.
    pub real: f64,
}

/// A tensor that a recorded call returns.
#[repr(C)]
pub struct FlagosOutput {
    /// The index of the argument that is returned, or -1.
    pub argument: i64,
    /// Where there is no argument: the new tensor, in a block.
    pub place: FlagosPlace,
}

/// A recording read by `recording_read`. Immutable.
#[repr(C)]
pub struct FlagosRecording {
    /// The memory to allocate.
    pub blocks: *const FlagosBlock,
    /// How many blocks there are.
    pub num_blocks: usize,
    /// The work, in order.
    pub steps: *const FlagosStep,
    /// How many steps there are.
    pub num_steps: usize,
    /// The results, in order.
    pub results: *const FlagosOutput,
    /// How many results there are.
    pub num_results: usize,
}

/// A launch made by `launch_create`.
pub struct FlagosLaunch {
    pub(super) launch: crate::kernels::Launch,
}

/// `graph_capture_begin`: until the end, no thread makes calls that wait for the device or that copy at once.
pub const FLAGOS_CAPTURE_GLOBAL: i32 = 0;

/// `graph_capture_begin`: until the end, the thread that calls makes no such calls.
pub const FLAGOS_CAPTURE_THREAD_LOCAL: i32 = 1;

/// `graph_capture_begin`: every thread may make such calls, and any may end the capture.
pub const FLAGOS_CAPTURE_RELAXED: i32 = 2;

/// `stream_capture_status`: the stream is not captured.
pub const FLAGOS_CAPTURE_NONE: i32 = 0;

/// `stream_capture_status`: work queued on the stream becomes part of a graph.
pub const FLAGOS_CAPTURE_ACTIVE: i32 = 1;

/// `stream_capture_status`: something has happened that the capture forbids, and it can only be ended.
pub const FLAGOS_CAPTURE_INVALID: i32 = 2;

/// A graph made by `graph_create`.
pub struct FlagosGraph {
    pub(super) graph: crate::runtime::StreamGraph,
}

/// The table. Every function may be called from any thread. A function returning `int32_t` returns a
/// `FLAGOS_*` status unless its comment says otherwise; after a failure `last_error` has the message.
/// Streams: 0 is the default stream of each device; other ids come from `stream_create`.
#[repr(C)]
pub struct FlagosApi {
    /// `sizeof(FlagosApi)` of the library: fields beyond it do not exist.
    pub struct_size: usize,
    /// `FLAGOS_ABI_VERSION` of the library.
    pub abi_version: u32,
    /// The message of the last failure on this thread; valid until the next one. Never NULL.
    pub last_error: extern "C" fn() -> *const c_char,
    /// Reads the configuration, publishes the plan and opens the vendor, once per process; every later call
    /// costs one load. After a failure `init` may be called again.
    pub init: extern "C" fn() -> i32,
    /// The number of devices, not a status; 0 when there is none or the configuration is wrong.
    /// Initialises nothing.
    pub device_count: extern "C" fn() -> i32,
    /// Describes a device.
    pub device_properties:
        unsafe extern "C" fn(device: i32, out: *mut FlagosDeviceProperties) -> i32,
    /// Allocates memory aligned to 512 bytes, reusable in the order of `stream`. 0 bytes give a NULL
    /// `data` and a NULL `block`. `block` is a handle, not an address.
    pub mem_alloc: unsafe extern "C" fn(
        device: i32,
        stream: u64,
        nbytes: usize,
        data: *mut *mut c_void,
        block: *mut *mut c_void,
    ) -> i32,
    /// Gives a block back, from any thread. NULL, and any block in a forked child, is ignored.
    pub mem_free: extern "C" fn(block: *mut c_void),
    /// Notes that work queued on `stream` of the block's device uses the block.
    pub mem_record_stream: extern "C" fn(block: *mut c_void, stream: u64) -> i32,
    /// Gives unused cached memory back to the vendor, of one device or (-1) of all and pinned memory.
    pub mem_empty_cache: extern "C" fn(device: i32) -> i32,
    /// Statistics of a device.
    pub mem_stats: unsafe extern "C" fn(device: i32, out: *mut FlagosMemoryStats) -> i32,
    /// Peaks start again from the current values.
    pub mem_reset_peak: extern "C" fn(device: i32) -> i32,
    /// Accumulated values start again from 0.
    pub mem_reset_accumulated: extern "C" fn(device: i32) -> i32,
    /// Free and total bytes of a device.
    pub mem_info: unsafe extern "C" fn(device: i32, free: *mut usize, total: *mut usize) -> i32,
    /// Limits what may be reserved to a fraction, over 0 and up to 1, of the device.
    pub mem_set_fraction: extern "C" fn(device: i32, fraction: f64) -> i32,
    /// The cached segments and their blocks as JSON; free it with `string_free`.
    pub mem_snapshot_json: unsafe extern "C" fn(device: i32, out: *mut *mut c_char) -> i32,
    /// Frees a string made by this table. NULL is ignored.
    pub string_free: unsafe extern "C" fn(string: *mut c_char),
    /// The device whose memory contains the address, or -1; not a status.
    pub mem_device_of: extern "C" fn(ptr: *const c_void) -> i32,
    /// Allocates page-locked host memory. 0 bytes give a NULL `data` and a NULL `block`.
    pub pinned_alloc:
        unsafe extern "C" fn(nbytes: usize, data: *mut *mut c_void, block: *mut *mut c_void) -> i32,
    /// Gives pinned memory back. It is reused after the recorded streams have finished the work queued so far.
    pub pinned_free: extern "C" fn(block: *mut c_void),
    /// 1 when the address lies in pinned memory, else 0; not a status.
    pub is_pinned: extern "C" fn(ptr: *const c_void) -> i32,
    /// Notes that work queued on a stream uses the pinned block that the address lies in.
    pub pinned_record: extern "C" fn(ptr: *const c_void, device: i32, stream: u64) -> i32,
    /// A stream from a set of 32 for each priority (below 0 is high), handed out round robin.
    pub stream_create: unsafe extern "C" fn(device: i32, priority: i32, stream: *mut u64) -> i32,
    /// Whether everything queued has finished. Reports a failure of queued work, once.
    pub stream_query: unsafe extern "C" fn(device: i32, stream: u64, idle: *mut i32) -> i32,
    /// Waits for everything queued so far. Reports a failure of queued work, once.
    pub stream_sync: extern "C" fn(device: i32, stream: u64) -> i32,
    /// Waits for everything queued on all streams of the device. Reports a failure of queued work, once.
    pub device_sync: extern "C" fn(device: i32) -> i32,
    /// Queues a call of `function(context)`, made on another thread, in order. The function must not throw, nor
    /// wait for functions of other streams. Within it a vendor may refuse every call that does not free.
    pub stream_launch: unsafe extern "C" fn(
        device: i32,
        stream: u64,
        function: unsafe extern "C" fn(*mut c_void),
        context: *mut c_void,
    ) -> i32,
    /// Queues a copy between device, pinned and ordinary memory. Both ranges stay valid until the copy has run.
    /// When one side is ordinary memory, or both are the host's, the copy may have run on return.
    pub copy_async: unsafe extern "C" fn(
        device: i32,
        stream: u64,
        dst: *mut c_void,
        src: *const c_void,
        nbytes: usize,
    ) -> i32,
    /// The address of the number of queued items that have not finished, over all streams. The address is the
    /// same for the life of the process. Load the number with `__ATOMIC_ACQUIRE`: after a 0 host code may use
    /// device memory on the host vendor without waiting. On a vendor whose device memory only the device uses
    /// the number is always 0.
    pub pending: extern "C" fn() -> *const u64,
    /// A new event for streams of `device`. Only an event with `timing` has a time.
    pub event_create:
        unsafe extern "C" fn(device: i32, timing: i32, event: *mut *mut c_void) -> i32,
    /// Destroys an event, recorded or not. NULL is ignored.
    pub event_destroy: unsafe extern "C" fn(event: *mut c_void),
    /// Records the event: it stands for the work queued on the stream so far.
    pub event_record: unsafe extern "C" fn(event: *mut c_void, device: i32, stream: u64) -> i32,
    /// Lets work queued on the stream from now on start after the work that the event stands for.
    pub event_wait: unsafe extern "C" fn(event: *mut c_void, device: i32, stream: u64) -> i32,
    /// Whether the work that the event stands for has finished; true before the first record.
    pub event_query: unsafe extern "C" fn(event: *mut c_void, done: *mut i32) -> i32,
    /// Waits for the work that the event stands for.
    pub event_sync: unsafe extern "C" fn(event: *mut c_void) -> i32,
    /// Milliseconds between two events with timing that have finished.
    pub event_elapsed:
        unsafe extern "C" fn(start: *mut c_void, end: *mut c_void, milliseconds: *mut f64) -> i32,
    /// The slot of an operator, such as `aten::add.Tensor`; NULL for an invalid name. Initialises nothing.
    pub op_slot: unsafe extern "C" fn(qualified_name: *const c_char) -> *mut FlagosOpSlot,
    /// The reason why an operator is blocked; free the text with `string_free`.
    pub op_blocked_reason: unsafe extern "C" fn(name: *const c_char, out: *mut *mut c_char) -> i32,
    /// Statistics of pinned memory.
    pub pinned_stats: unsafe extern "C" fn(out: *mut FlagosPinnedStats) -> i32,
    /// Peaks of pinned memory start again from the current values.
    pub pinned_reset_peak: extern "C" fn() -> i32,
    /// Accumulated values of pinned memory start again from 0.
    pub pinned_reset_accumulated: extern "C" fn() -> i32,
    /// Counts a CPU fallback that is about to happen, or refuses it in strict mode and when the budget is spent.
    pub op_record_fallback: unsafe extern "C" fn(name: *const c_char, reason: *const c_char) -> i32,
    /// Checks a launch against its function (number and sizes of parameters, where the vendor tells them)
    /// and prepares it. The function's device has to be the calling thread's in the vendor's own library. Fails with
    /// `FLAGOS_UNSUPPORTED` when the vendor in use launches no kernels.
    pub launch_create:
        unsafe extern "C" fn(desc: *const FlagosLaunchDesc, out: *mut *mut FlagosLaunch) -> i32,
    /// Queues a launch on a stream of the function's device, by its handle in the vendor's own library, with these
    /// pointers. Takes no lock and allocates nothing; several threads may run a launch at once.
    pub launch_run: unsafe extern "C" fn(
        launch: *const FlagosLaunch,
        stream: u64,
        pointers: *const u64,
        num_pointers: usize,
    ) -> i32,
    /// Frees a launch that no thread runs; queued work is not affected. NULL is ignored.
    pub launch_free: unsafe extern "C" fn(launch: *mut FlagosLaunch),
    /// Writes the line about who serves a call to stderr. The slot says whether that is wanted
    /// (`FLAGOS_FLAG_LOG`).
    pub op_log_dispatch: unsafe extern "C" fn(name: *const c_char, backend: *const c_char),
    /// As `mem_alloc`, for callers that keep the address alone: only `mem_free_at` frees such a block.
    pub mem_alloc_at: unsafe extern "C" fn(
        device: i32,
        stream: u64,
        nbytes: usize,
        data: *mut *mut c_void,
    ) -> i32,
    /// Gives back the block of `mem_alloc_at` that begins at an address, from any thread. 1 when there is
    /// one, which a forked child only forgets; else 0; not a status.
    pub mem_free_at: extern "C" fn(data: *mut c_void) -> i32,
    /// Notes that work queued on `stream` of the block's device uses the block of `mem_alloc_at` that begins at an
    /// address. Other addresses are ignored.
    pub mem_record_stream_at: extern "C" fn(data: *const c_void, stream: u64) -> i32,
    /// Reads a recording, and prepares its launches as `launch_create` does. `num_inputs` tensors are among
    /// the arguments of the call, numbers of dtypes are below `num_dtypes`.
    pub recording_read: unsafe extern "C" fn(
        words: *const i64,
        num_words: usize,
        num_inputs: usize,
        num_dtypes: u32,
        out: *mut *mut FlagosRecording,
    ) -> i32,
    /// Frees a recording that nobody runs any more; queued work is not affected. NULL is ignored.
    pub recording_free: unsafe extern "C" fn(recording: *mut FlagosRecording),
    /// Describes the vendor that serves this process, or would serve it, whose library is loaded if it is one. Opens no
    /// device. With a mistake in the configuration, which `init` reports, it is the best vendor present. Fails when the
    /// library cannot be loaded.
    pub vendor: unsafe extern "C" fn(out: *mut FlagosVendorInfo) -> i32,
    /// The kernels of the vendor that serves this process, or would serve it, as `flagos_kernels.h` has them: a checked
    /// table that lives as long as the process. NULL where the vendor has none or cannot be used. Opens no device.
    pub kernels: extern "C" fn() -> *const FlagosKernels,
    /// A stream as the library of the vendor knows it (`flagos_vendor.h`), for calls of its kernels. Both live as long as
    /// the process. `FLAGOS_UNSUPPORTED` when the vendor is no library.
    pub stream_library: unsafe extern "C" fn(
        device: i32,
        stream: u64,
        instance: *mut *mut FlagosVendorInstance,
        handle: *mut *mut FlagosVendorStream,
    ) -> i32,

    /// `FLAGOS_UNSUPPORTED`, and the reason, where the vendor captures no work of streams into graphs.
    pub graph_supported: extern "C" fn() -> i32,
    /// New memory that graphs may share; a number, which nobody gives back.
    pub graph_memory_create: unsafe extern "C" fn(memory: *mut u64) -> i32,
    /// An empty graph.
    pub graph_create: unsafe extern "C" fn(graph: *mut *mut FlagosGraph) -> i32,
    /// Begins to capture the work of a stream, not the default one, into an empty graph: until the end it is not run. What
    /// captured streams allocate comes from `memory`, or from memory of the graph's own for 0, and stays the graph's until
    /// `graph_reset`. `mode` is one of `FLAGOS_CAPTURE_*`. Calls that wait for the device or for captured work fail
    /// meanwhile with `FLAGOS_UNSUPPORTED`.
    pub graph_capture_begin: unsafe extern "C" fn(
        graph: *mut FlagosGraph,
        device: i32,
        stream: u64,
        memory: u64,
        mode: i32,
    ) -> i32,
    /// Ends the capture. After a failure the graph is empty, unless the failure is that another thread began the capture.
    pub graph_capture_end: unsafe extern "C" fn(graph: *mut FlagosGraph) -> i32,
    /// Queues all captured work on a stream of the graph's device.
    pub graph_replay: unsafe extern "C" fn(graph: *mut FlagosGraph, stream: u64) -> i32,
    /// Makes the graph empty; ends its capture if that goes on. Runs that are queued still run.
    pub graph_reset: unsafe extern "C" fn(graph: *mut FlagosGraph) -> i32,
    /// The memory that the graph uses.
    pub graph_memory: unsafe extern "C" fn(graph: *const FlagosGraph, memory: *mut u64) -> i32,
    /// The graph's device, or -1 when it is empty.
    pub graph_device: unsafe extern "C" fn(graph: *const FlagosGraph, device: *mut i32) -> i32,
    /// Resets and destroys a graph. NULL is ignored.
    pub graph_destroy: unsafe extern "C" fn(graph: *mut FlagosGraph),
    /// Writes one of `FLAGOS_CAPTURE_NONE`, `FLAGOS_CAPTURE_ACTIVE` and `FLAGOS_CAPTURE_INVALID`.
    pub stream_capture_status:
        unsafe extern "C" fn(device: i32, stream: u64, capture: *mut i32) -> i32,

    /// `FLAGOS_UNSUPPORTED`, and the reason, where the vendor shares no device memory between processes.
    pub memory_sharing: extern "C" fn() -> i32,
    /// The key by which other processes of this machine import the allocation of the vendor in which an address of a device
    /// lies, a text to be freed with `string_free`; the address's offset in that, and its size. Whoever sends the key keeps
    /// the block at the address until every process that imported it has closed it.
    pub memory_export: unsafe extern "C" fn(
        device: i32,
        address: *const c_void,
        key: *mut *mut c_char,
        offset: *mut usize,
        nbytes: *mut usize,
    ) -> i32,
    /// Memory of another process, by its key and size, at an address of this one. May be imported again.
    pub memory_import: unsafe extern "C" fn(
        device: i32,
        key: *const c_char,
        nbytes: usize,
        address: *mut *mut c_void,
    ) -> i32,
    /// Closes memory that `memory_import` gave, once for each call of that. Waits for the device.
    pub memory_close: unsafe extern "C" fn(device: i32, address: *mut c_void),

    /// The stream's handle in the vendor's own library, such as an `aclrtStream`, NULL where the vendor has none.
    pub stream_native:
        unsafe extern "C" fn(device: i32, stream: u64, handle: *mut *mut c_void) -> i32,

    /// Loads a program (its `nbytes` at `image`) on the device that is the calling thread's in the vendor's own library, or
    /// on `device` where the thread has none, for as long as the process lives. Gives the handle of its function of this
    /// name, which may be launched with so much dynamic shared memory. `FLAGOS_UNSUPPORTED` when the vendor in use loads
    /// no functions.
    pub function_load: unsafe extern "C" fn(
        device: i32,
        image: *const c_void,
        nbytes: usize,
        name: *const c_char,
        shared_bytes: u32,
        function: *mut u64,
    ) -> i32,
    /// Notes that work queued on `stream` of `device`, which may be another than the block's, uses the block of
    /// `mem_alloc_at` that begins at an address. Other addresses are ignored.
    pub mem_record_stream_of: extern "C" fn(data: *const c_void, device: i32, stream: u64) -> i32,
    /// As `op_record_fallback`, for a call that the chosen implementation declined and that does not run on the CPU for
    /// it: the native kernel of the device serves it.
    pub op_record_decline: unsafe extern "C" fn(name: *const c_char, reason: *const c_char) -> i32,
    /// Has a part of a kernel's call (`FlagosKernelCall::post`) queued on a stream of a library by a second thread, after
    /// all that was posted there before; at once while any stream is captured, and on a stream whose handle in the
    /// vendor's own library others know. The name of the operator lives as long as the process. Fails with what failed of earlier parts.
    pub stream_post: unsafe extern "C" fn(
        device: i32,
        stream: u64,
        name: *const c_char,
        run: unsafe extern "C" fn(argument: *mut c_void, queues: i32) -> i32,
        argument: *mut c_void,
    ) -> i32,
    /// Waits until everything posted on a stream has been queued, and fails with what failed of it. Other functions for a
    /// stream wait too, and fail with what was known to have failed before.
    pub stream_flush: extern "C" fn(device: i32, stream: u64) -> i32,
    /// `stream_flush` of every stream.
    pub queues_flush: extern "C" fn() -> i32,
    /// How many parts were posted in this process, and how often somebody had to wait for them.
    pub queues_counts: unsafe extern "C" fn(posted: *mut u64, waits: *mut u64) -> i32,
    /// For tests: delays every part by a random time of up to so many microseconds, and has some of those that wait for
    /// parts not wait: records of events (1), copies (2), memory that is freed (4), all others (8).
    pub queues_inject: extern "C" fn(delay_us: u64, unmindful: u32),
}

// The header's slot has the layout of the registry's.
#[cfg(not(loom))]
const _: () = {
    use crate::registry::{FLAG_LOG_DISPATCH, OpSlot, Route};
    use std::mem::{align_of, offset_of, size_of};
    assert!(size_of::<FlagosOpSlot>() == size_of::<OpSlot>());
    assert!(align_of::<FlagosOpSlot>() == align_of::<OpSlot>());
    assert!(offset_of!(FlagosOpSlot, calls) == offset_of!(OpSlot, calls));
    assert!(offset_of!(FlagosOpSlot, fallbacks) == offset_of!(OpSlot, fallbacks));
    assert!(offset_of!(FlagosOpSlot, route) == offset_of!(OpSlot, route));
    assert!(offset_of!(FlagosOpSlot, flags) == offset_of!(OpSlot, flags));
    assert!(offset_of!(FlagosOpSlot, impl_token) == offset_of!(OpSlot, impl_token));
    assert!(FLAGOS_ROUTE_NATIVE == Route::Native as u32);
    assert!(FLAGOS_ROUTE_FOREIGN == Route::Foreign as u32);
    assert!(FLAGOS_ROUTE_BLOCKED == Route::Blocked as u32);
    assert!(FLAGOS_ROUTE_CPU_FALLBACK == Route::CpuFallback as u32);
    assert!(FLAGOS_FLAG_LOG == FLAG_LOG_DISPATCH);
};
