//! The types of `include/flagos_vendor.h`, which is generated from this file.

use std::ffi::{c_char, c_void};

/// Version of the interface, major. Host and library must agree on it.
pub const FLAGOS_VENDOR_MAJOR: u32 = 1;

/// Version of the interface, minor: raised when members are appended, or bits or reserved slots get a meaning. Host
/// and library of different minor versions work together.
pub const FLAGOS_VENDOR_MINOR: u32 = 3;

/// Status: success.
pub const FLAGOS_VENDOR_OK: i32 = 0;

/// Status: an argument is wrong.
pub const FLAGOS_VENDOR_INVALID_ARGUMENT: i32 = 1;

/// Status: an environment variable or another setting of the vendor is wrong; the text names it.
pub const FLAGOS_VENDOR_CONFIG: i32 = 2;

/// Status: the device, or the host for pinned memory, has no memory left for the request.
pub const FLAGOS_VENDOR_OUT_OF_MEMORY: i32 = 3;

/// Status: the device, its driver or a piece of queued work failed. The device can still be used.
pub const FLAGOS_VENDOR_DEVICE: i32 = 4;

/// Status: not supported on this device or in this context, and nothing has changed.
pub const FLAGOS_VENDOR_UNSUPPORTED: i32 = 6;

/// Status: a defect of the library.
pub const FLAGOS_VENDOR_INTERNAL: i32 = 8;

/// Status: the device is lost for this process, and every later call for it fails with this status.
pub const FLAGOS_VENDOR_DEVICE_LOST: i32 = 9;

/// `FlagosVendor::capabilities`: host code computes on device memory directly. The library counts unfinished items in
/// `FlagosVendorOptions::pending`.
pub const FLAGOS_VENDOR_HOST_COMPUTES: u64 = 1;

/// `FlagosVendor::capabilities`: streams have handles of the vendor's own library: `stream_native_handle`.
pub const FLAGOS_VENDOR_NATIVE_HANDLES: u64 = 2;

/// `FlagosVendor::capabilities`: streams can be made of handles of the vendor's own library: `stream_external`.
pub const FLAGOS_VENDOR_EXTERNAL_STREAMS: u64 = 4;

/// `FlagosVendor::capabilities`: the library tells memory by its address. Every copy is of the kind
/// `FLAGOS_VENDOR_COPY_ANY`, and the host saves the look-up.
pub const FLAGOS_VENDOR_TELLS_MEMORY: u64 = 8;

/// `FlagosVendor::capabilities`: the library launches compiled kernels: `module_load`, `module_unload`, `kernel_create`,
/// `kernel_external`, `kernel_destroy`, `kernel_launch` and `memory_device_address`. Goes with
/// `FLAGOS_VENDOR_NATIVE_HANDLES`, because kernels are launched on such handles.
pub const FLAGOS_VENDOR_LAUNCHES: u64 = 16;

/// `FlagosVendor::capabilities`: the library captures the work of streams into graphs: `capture_begin`, `capture_status`,
/// `capture_end`, `graph_launch` and `graph_destroy`. Since version 1.1.
pub const FLAGOS_VENDOR_CAPTURES: u64 = 32;

/// `FlagosVendor::capabilities`: processes share device memory: `memory_export`, `memory_import`, `memory_close` and
/// `memory_close_all`. Since version 1.2.
pub const FLAGOS_VENDOR_SHARES: u64 = 64;

/// `FlagosVendor::capabilities`: a device may address the memory of another one: `device_reaches`. Since version 1.2.
pub const FLAGOS_VENDOR_REACHES_PEERS: u64 = 128;

/// `FlagosVendor::capabilities`: `capture_status` tells of captures that other libraries began. For a library without
/// `FLAGOS_VENDOR_CAPTURES`. Since version 1.3.
pub const FLAGOS_VENDOR_SEES_CAPTURES: u64 = 256;

/// `capture_begin`: until the end, no thread makes calls that wait for the device or that copy at once.
pub const FLAGOS_VENDOR_CAPTURE_GLOBAL: i32 = 0;

/// `capture_begin`: until the end, the thread that calls makes no such calls.
pub const FLAGOS_VENDOR_CAPTURE_THREAD_LOCAL: i32 = 1;

/// `capture_begin`: every thread may make such calls, and any may end the capture.
pub const FLAGOS_VENDOR_CAPTURE_RELAXED: i32 = 2;

/// `FlagosVendorHost::log`: a failure.
pub const FLAGOS_VENDOR_LOG_ERROR: i32 = 0;

/// `FlagosVendorHost::log`: something a user should look at.
pub const FLAGOS_VENDOR_LOG_WARNING: i32 = 1;

/// `FlagosVendorHost::log`: something a user may want to know.
pub const FLAGOS_VENDOR_LOG_INFO: i32 = 2;

/// `FlagosVendorHost::log`: for the developers of the library.
pub const FLAGOS_VENDOR_LOG_DEBUG: i32 = 3;

/// `stream_copy`: the library tells the kind by the addresses (`FLAGOS_VENDOR_TELLS_MEMORY`).
pub const FLAGOS_VENDOR_COPY_ANY: i32 = 0;

/// `stream_copy`: from host memory, pinned or ordinary, to memory of the stream's device.
pub const FLAGOS_VENDOR_COPY_HOST_TO_DEVICE: i32 = 1;

/// `stream_copy`: from memory of the stream's device to host memory, pinned or ordinary.
pub const FLAGOS_VENDOR_COPY_DEVICE_TO_HOST: i32 = 2;

/// `stream_copy`: within the memory of the stream's device.
pub const FLAGOS_VENDOR_COPY_DEVICE_TO_DEVICE: i32 = 3;

/// `stream_copy`: memory of another device than the stream's is on one side or on both.
pub const FLAGOS_VENDOR_COPY_PEER: i32 = 4;

/// `stream_copy`: both sides are host memory.
pub const FLAGOS_VENDOR_COPY_HOST_TO_HOST: i32 = 5;

/// `event_create`: the event notes the time at which it is reached.
pub const FLAGOS_VENDOR_EVENT_TIMING: u32 = 1;

/// `FlagosVendorKernelOptions::flags`: all blocks of a launch run at the same time.
pub const FLAGOS_VENDOR_LAUNCH_COOPERATIVE: u32 = 1;

/// `FlagosVendorKernelOptions::flags`: a launch may start before the kernel ahead of it in the stream has finished, for
/// which it waits itself.
pub const FLAGOS_VENDOR_LAUNCH_DEPENDENT: u32 = 2;

/// `FlagosVendorDescription::serving`: host code computes on device memory, with the framework's CPU kernels.
pub const FLAGOS_VENDOR_SERVED_BY_HOST: i32 = 0;

/// `FlagosVendorDescription::serving`: the framework itself computes, on its device type `torch_device_type`.
pub const FLAGOS_VENDOR_SERVED_BY_TORCH: i32 = 1;

/// `FlagosVendorDescription::serving`: kernels of the library compute.
pub const FLAGOS_VENDOR_SERVED_BY_LIBRARY: i32 = 2;

/// What the host gives to the library when it asks for a table; the versions are those of the table's interface. Lives as
/// long as the process.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorHost {
    /// `sizeof(FlagosVendorHost)` of the host: members beyond it do not exist.
    pub struct_size: usize,
    /// The oldest major version that the host takes.
    pub oldest_major: u32,
    /// The newest major version that the host takes.
    pub newest_major: u32,
    /// The minor version of `newest_major` that the host was compiled with.
    pub newest_minor: u32,
    /// 0.
    pub reserved_word: u32,
    /// Writes a line into the host's log. `level` is one of `FLAGOS_VENDOR_LOG_*`, `text` UTF-8. May be called from
    /// every thread, except in a forked child.
    pub log: Option<unsafe extern "C" fn(level: i32, text: *const c_char)>,
    /// NULL.
    pub reserved: [*const c_void; 8],
}

/// An environment variable of the vendor.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorVariable {
    /// `sizeof(FlagosVendorVariable)` of the library.
    pub struct_size: usize,
    /// The variable's name, such as `ACME_VISIBLE_DEVICES`.
    pub name: *const c_char,
    /// What the variable does, in one sentence.
    pub text: *const c_char,
}

/// A library that the vendor needs or uses where it is there.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorLibrary {
    /// `sizeof(FlagosVendorLibrary)` of the library.
    pub struct_size: usize,
    /// The name the dynamic linker finds it by, such as `libacme.so.1`.
    pub soname: *const c_char,
    /// What it is needed for, in one sentence.
    pub text: *const c_char,
    /// 1 when the vendor does not work without it, else 0.
    pub required: i32,
    /// 0.
    pub reserved_word: i32,
}

/// What is special about the vendor, as data. Texts are UTF-8 and end with NUL; a text that says "or NULL" may be NULL.
/// Lists of texts end with NULL, and a NULL list is an empty one. Everything lives as long as the process.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorDescription {
    /// `sizeof(FlagosVendorDescription)` of the library: members beyond it do not exist.
    pub struct_size: usize,
    /// The name that selects the vendor (`FLAGOS_VENDOR`): a lower-case letter, then letters, digits and `_`, at most
    /// 31 of all.
    pub name: *const c_char,
    /// The version of the library, for people.
    pub version: *const c_char,
    /// Other names of the vendor, written as `name` is.
    pub aliases: *const *const c_char,
    /// `num_variables` environment variables, each `struct_size` of the first bytes long.
    pub variables: *const FlagosVendorVariable,
    /// The number of `variables`.
    pub num_variables: usize,
    /// `num_libraries` libraries that `flagos doctor` looks for, each `struct_size` of the first bytes long.
    pub libraries: *const FlagosVendorLibrary,
    /// The number of `libraries`.
    pub num_libraries: usize,
    /// Texts that mean, in an error of any library over this vendor, that the device is lost.
    pub device_lost: *const *const c_char,
    /// The collective engine for this vendor's memory, such as `nccl`, or NULL.
    pub collective_engine: *const c_char,
    /// The name of the vendor's Triton backend, or NULL.
    pub triton_backend: *const c_char,
    /// The name of the vendor in FlagGems, or NULL.
    pub flaggems_vendor: *const c_char,
    /// The framework's own device type, by the framework's name: required by `FLAGOS_VENDOR_SERVED_BY_TORCH`, else NULL.
    pub torch_device_type: *const c_char,
    /// How a framework computes on the devices: one of `FLAGOS_VENDOR_SERVED_BY_*`.
    pub serving: i32,
    /// The `DLDeviceType` of the memory: 1 for memory of the host, 12 (`kDLExtDev`) for a vendor without one of its own.
    pub dlpack_device_type: i32,
    /// NULL.
    pub reserved: [*const c_void; 16],
}

/// What the host gives to the library when it opens the vendor. Valid during the call only.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorOptions {
    /// `sizeof(FlagosVendorOptions)` of the host: members beyond it do not exist.
    pub struct_size: usize,
    /// With `FLAGOS_VENDOR_HOST_COMPUTES` the number of items queued and not finished, over all streams; else NULL.
    /// The library adds 1 before an item is queued, and subtracts 1 with release order after its effects are there.
    /// Lives as long as the process.
    pub pending: *mut u64,
    /// NULL.
    pub reserved: [*const c_void; 8],
}

/// The properties of a device.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorProperties {
    /// `sizeof(FlagosVendorProperties)` of the host, which the library leaves alone: it writes no member beyond it.
    pub struct_size: usize,
    /// Product name, NUL-terminated UTF-8.
    pub name: [c_char; 256],
    /// Memory of the device in bytes.
    pub total_memory: u64,
    /// Multiprocessors, at least 1.
    pub multi_processor_count: i32,
    /// Version of the device's architecture, major.
    pub major: i32,
    /// Version of the device's architecture, minor.
    pub minor: i32,
    /// 0.
    pub reserved_word: i32,
}

/// The memory of a device, in bytes.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorMemory {
    /// `sizeof(FlagosVendorMemory)` of the host, which the library leaves alone: it writes no member beyond it.
    pub struct_size: usize,
    /// Bytes that are not allocated.
    pub free: u64,
    /// All bytes of the device.
    pub total: u64,
}

/// A tensor without its address, of which the library makes the descriptor that a kernel takes, 128 bytes long.
/// Dimensions begin with the one whose elements lie side by side.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorTensorMap {
    /// `sizeof(FlagosVendorTensorMap)` of the host: members beyond it do not exist.
    pub struct_size: usize,
    /// The vendor's number of the elements' type.
    pub data_type: u32,
    /// Dimensions, 1 to 5.
    pub rank: u32,
    /// Elements along each dimension.
    pub shape: [u64; 5],
    /// Bytes from one element to the next along each dimension but the first.
    pub strides: [u64; 5],
    /// Elements of a block along each dimension.
    pub block: [u32; 5],
    /// The vendor's number of the order in which a block lies in shared memory.
    pub swizzle: u32,
    /// 1: elements outside the tensor read as NaN; 0: as zero.
    pub fills_with_nan: u32,
    /// 0.
    pub reserved_word: u32,
}

/// A parameter of a kernel, without its value.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorParameter {
    /// `sizeof(FlagosVendorParameter)` of the host: members beyond it do not exist.
    pub struct_size: usize,
    /// NULL, or the tensor whose descriptor is the parameter.
    pub map: *const FlagosVendorTensorMap,
    /// Bytes: 1, 2, 4 or 8; 128 for a descriptor.
    pub size: u32,
    /// 0.
    pub reserved_word: u32,
}

/// How a kernel is launched, apart from grid, stream and the values of parameters. Valid during the call only.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorKernelOptions {
    /// `sizeof(FlagosVendorKernelOptions)` of the host: members beyond it do not exist.
    pub struct_size: usize,
    /// Threads of a block, along each axis.
    pub block: [u32; 3],
    /// Blocks of a cluster, along each axis, spread over the device; 1, 1, 1 for no clusters.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Bits `FLAGOS_VENDOR_LAUNCH_*`.
    pub flags: u32,
    /// `num_parameters` parameters, each `struct_size` of the first bytes long.
    pub parameters: *const FlagosVendorParameter,
    /// The number of `parameters`, at most 512.
    pub num_parameters: usize,
    /// NULL.
    pub reserved: [*const c_void; 8],
}

/// A program that is loaded for one device, as the library keeps it.
pub struct FlagosVendorModule;

/// A function of the device with the options of its launches, as the library keeps it.
pub struct FlagosVendorKernel;

/// Captured work, as the library keeps it.
pub struct FlagosVendorGraph;

/// The opened vendor, as the library keeps it.
pub struct FlagosVendorInstance;

/// A queue of work of one device, run in order, as the library keeps it.
pub struct FlagosVendorStream;

/// A point in a stream, as the library keeps it. Before the first record it counts as finished.
pub struct FlagosVendorEvent;

/// A function queued on a stream.
pub type FlagosVendorHostFunction = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// The table of a library. Lives, and stays as it is, as long as the process: a library is never closed.
///
/// Every function may be called from any thread, and lets no exception out. A function returning `int32_t` returns
/// one of `FLAGOS_VENDOR_OK`, ... unless its comment says otherwise; after a failure `last_error` has the text. Outputs
/// are never NULL, and are written on success only. The host has checked that devices exist, that sizes are above 0, and
/// that streams and events are of one instance.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendor {
    /// `sizeof(FlagosVendor)` of the library: members beyond it do not exist.
    pub struct_size: usize,
    /// `FLAGOS_VENDOR_MAJOR` of the library.
    pub major: u32,
    /// `FLAGOS_VENDOR_MINOR` of the library.
    pub minor: u32,
    /// Bits `FLAGOS_VENDOR_HOST_COMPUTES`, ... of what the library can. Bits without a meaning in its version are 0.
    pub capabilities: u64,
    /// What is special about the vendor.
    pub description: *const FlagosVendorDescription,

    /// The text of the last failure on this thread, UTF-8; valid until the thread's next call. NULL for none.
    pub last_error: Option<unsafe extern "C" fn() -> *const c_char>,
    /// The number of devices the vendor would show, at least 1; otherwise fails, and the text is the reason why the
    /// vendor cannot be used here. Initialises nothing that a later fork would break.
    pub probe: Option<unsafe extern "C" fn(device_count: *mut i32) -> i32>,
    /// Opens the vendor. May be called again, for another instance.
    pub open: Option<
        unsafe extern "C" fn(
            options: *const FlagosVendorOptions,
            instance: *mut *mut FlagosVendorInstance,
        ) -> i32,
    >,
    /// Gives an instance back, of which the host has destroyed all streams and events. Work that is still queued runs.
    /// Does not wait, because work running on a stream may call it.
    pub close: Option<unsafe extern "C" fn(instance: *mut FlagosVendorInstance)>,
    /// Called in a forked child, where no thread of the library exists any more. The host calls nothing else there.
    pub after_fork_in_child: Option<unsafe extern "C" fn(instance: *mut FlagosVendorInstance)>,
    /// 1 when the calling thread runs work of a stream, where waiting for a stream would deadlock, else 0; not a status.
    pub in_stream_work: Option<unsafe extern "C" fn(instance: *mut FlagosVendorInstance) -> i32>,

    /// The number of devices, the one that `probe` writes. They are numbered from 0.
    pub device_count:
        Option<unsafe extern "C" fn(instance: *mut FlagosVendorInstance, count: *mut i32) -> i32>,
    /// Describes a device.
    pub device_properties: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            properties: *mut FlagosVendorProperties,
        ) -> i32,
    >,
    /// Free and total memory of a device.
    pub device_memory: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            memory: *mut FlagosVendorMemory,
        ) -> i32,
    >,
    /// Waits for all work queued on the device so far. Reports a failure of queued work that has not been reported, and
    /// forgets all of them. `FLAGOS_VENDOR_UNSUPPORTED` in work running on a stream, unless nothing is queued.
    pub device_sync:
        Option<unsafe extern "C" fn(instance: *mut FlagosVendorInstance, device: i32) -> i32>,
    /// Waits as `device_sync` does, and leaves failures to be reported by a later call. Fails only where waiting is
    /// impossible.
    pub device_quiesce:
        Option<unsafe extern "C" fn(instance: *mut FlagosVendorInstance, device: i32) -> i32>,

    /// Allocates device memory, aligned to 512 bytes, with any contents. It overlaps no memory that the host still has,
    /// of any device or pinned.
    pub memory_alloc: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            nbytes: usize,
            address: *mut *mut c_void,
        ) -> i32,
    >,
    /// Gives device memory back, with the size of its allocation. No queued work uses it.
    pub memory_free: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            address: *mut c_void,
            nbytes: usize,
        ) -> i32,
    >,
    /// Allocates page-locked host memory that every device can copy from and to, aligned to 512 bytes. It overlaps no memory
    /// that the host still has, of any device or pinned.
    pub pinned_alloc: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            nbytes: usize,
            address: *mut *mut c_void,
        ) -> i32,
    >,
    /// Gives pinned memory back, with the size of its allocation. No queued work uses it.
    pub pinned_free: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            address: *mut c_void,
            nbytes: usize,
        ) -> i32,
    >,

    /// The default stream of a device: the same one at each call, never destroyed by the host.
    pub stream_default: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            stream: *mut *mut FlagosVendorStream,
        ) -> i32,
    >,
    /// A new stream, with a handle of its own. A lower `priority` is more urgent, 0 is normal; the library clamps it to
    /// what it has.
    pub stream_create: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            priority: i32,
            stream: *mut *mut FlagosVendorStream,
        ) -> i32,
    >,
    /// Destroys a stream. Its queued work still runs, and `device_sync` waits for it. Does not wait itself.
    pub stream_destroy: Option<unsafe extern "C" fn(stream: *mut FlagosVendorStream) -> i32>,
    /// Writes whether everything queued has finished: 1 or 0. Reports a failure of queued work, once.
    pub stream_query:
        Option<unsafe extern "C" fn(stream: *mut FlagosVendorStream, idle: *mut i32) -> i32>,
    /// 1 when everything queued has finished, else 0; not a status. Reports no failure.
    pub stream_is_idle: Option<unsafe extern "C" fn(stream: *mut FlagosVendorStream) -> i32>,
    /// Waits for everything queued so far, not at all when the stream is idle. Reports a failure of queued work, once.
    /// `FLAGOS_VENDOR_UNSUPPORTED` in work running on a stream, unless the stream is idle.
    pub stream_sync: Option<unsafe extern "C" fn(stream: *mut FlagosVendorStream) -> i32>,
    /// Queues a copy; `kind` is one of `FLAGOS_VENDOR_COPY_*`. Where one side is ordinary memory, or both are the
    /// host's, the library may wait for the copy.
    pub stream_copy: Option<
        unsafe extern "C" fn(
            stream: *mut FlagosVendorStream,
            to: *mut c_void,
            from: *const c_void,
            nbytes: usize,
            kind: i32,
        ) -> i32,
    >,
    /// Queues a call of `function(context)` on a thread of the library. Once this has succeeded the call happens, also
    /// after earlier work failed.
    pub stream_host_function: Option<
        unsafe extern "C" fn(
            stream: *mut FlagosVendorStream,
            function: FlagosVendorHostFunction,
            context: *mut c_void,
        ) -> i32,
    >,

    /// A new event, with a handle of its own, for streams of a device; `flags` are bits `FLAGOS_VENDOR_EVENT_*`.
    pub event_create: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            flags: u32,
            event: *mut *mut FlagosVendorEvent,
        ) -> i32,
    >,
    /// Destroys an event, which streams may still wait for, or have to reach.
    pub event_destroy: Option<unsafe extern "C" fn(event: *mut FlagosVendorEvent) -> i32>,
    /// Records an event of the stream's device: from now on it stands for the work queued so far.
    pub event_record: Option<
        unsafe extern "C" fn(event: *mut FlagosVendorEvent, stream: *mut FlagosVendorStream) -> i32,
    >,
    /// Lets work queued on the stream from now on start after the work that the event stands for now. The event may be of
    /// another device. An event that was never recorded is no constraint.
    pub event_wait: Option<
        unsafe extern "C" fn(event: *mut FlagosVendorEvent, stream: *mut FlagosVendorStream) -> i32,
    >,
    /// Writes whether the recorded work has finished: 1 or 0. Reports a failure of that work.
    pub event_query:
        Option<unsafe extern "C" fn(event: *mut FlagosVendorEvent, done: *mut i32) -> i32>,
    /// Waits for the recorded work. Reports a failure of that work. `FLAGOS_VENDOR_UNSUPPORTED` in work running on a stream,
    /// unless the event is finished.
    pub event_sync: Option<unsafe extern "C" fn(event: *mut FlagosVendorEvent) -> i32>,
    /// Milliseconds between two events, negative where `end` was first. `FLAGOS_VENDOR_INVALID_ARGUMENT` unless both have
    /// timing, are recorded and finished.
    pub event_elapsed: Option<
        unsafe extern "C" fn(
            start: *mut FlagosVendorEvent,
            end: *mut FlagosVendorEvent,
            milliseconds: *mut f64,
        ) -> i32,
    >,

    /// With `FLAGOS_VENDOR_NATIVE_HANDLES` the stream's handle in the vendor's own library, which lives as long as the
    /// stream; else NULL.
    pub stream_native_handle: Option<
        unsafe extern "C" fn(stream: *mut FlagosVendorStream, handle: *mut *mut c_void) -> i32,
    >,
    /// With `FLAGOS_VENDOR_EXTERNAL_STREAMS` a stream over a handle of the vendor's own library, which the user made on the
    /// device, keeps alive, and destroys; NULL is the default stream. `stream_destroy` leaves the handle alone. Else NULL.
    pub stream_external: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            handle: *mut c_void,
            stream: *mut *mut FlagosVendorStream,
        ) -> i32,
    >,

    /// With `FLAGOS_VENDOR_LAUNCHES` loads a program of `nbytes` in a format of the vendor, which the library copies, for a
    /// device; else NULL, as are all functions below.
    pub module_load: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            image: *const c_void,
            nbytes: usize,
            module: *mut *mut FlagosVendorModule,
        ) -> i32,
    >,
    /// Gives a module back, of which the host has destroyed all kernels. No queued work uses it. May be called by work
    /// running on a stream.
    pub module_unload: Option<unsafe extern "C" fn(module: *mut FlagosVendorModule) -> i32>,
    /// A kernel of the module's function of this name. `FLAGOS_VENDOR_INVALID_ARGUMENT` when there is none, when the
    /// parameters are not those of the function, as far as the vendor knows them, or when the options exceed a limit;
    /// `FLAGOS_VENDOR_UNSUPPORTED` for options that the vendor does not have.
    pub kernel_create: Option<
        unsafe extern "C" fn(
            module: *mut FlagosVendorModule,
            name: *const c_char,
            options: *const FlagosVendorKernelOptions,
            kernel: *mut *mut FlagosVendorKernel,
        ) -> i32,
    >,
    /// A kernel of a function that the user has loaded by the vendor's own library, whose handle this is: on the device that
    /// is current there on this thread. The user keeps it loaded. Fails as `kernel_create`.
    pub kernel_external: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            function: *mut c_void,
            options: *const FlagosVendorKernelOptions,
            kernel: *mut *mut FlagosVendorKernel,
        ) -> i32,
    >,
    /// Gives a kernel back. No queued work uses it. May be called by work running on a stream.
    pub kernel_destroy: Option<unsafe extern "C" fn(kernel: *mut FlagosVendorKernel) -> i32>,
    /// Queues a kernel on a stream of its device, by the stream's handle in the vendor's own library. `grid` has the number
    /// of blocks along each of three axes, counted singly and not in clusters. `words` has a word for each parameter: a
    /// number in its lowest bytes, an address, and for a descriptor the address of the tensor. Both are valid during the
    /// call only.
    pub kernel_launch: Option<
        unsafe extern "C" fn(
            kernel: *mut FlagosVendorKernel,
            stream: *mut c_void,
            grid: *const u32,
            words: *const u64,
        ) -> i32,
    >,
    /// Writes the address by which kernels of the current device reach this memory, and NULL when they do not.
    pub memory_device_address: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            address: *mut c_void,
            device_address: *mut *mut c_void,
        ) -> i32,
    >,
    /// With `FLAGOS_VENDOR_CAPTURES` begins a capture; else NULL, as are all functions below. Until its end, work queued on
    /// the stream is not run but becomes part of a graph, and memory that it uses stays the graph's. A stream that waits
    /// for an event recorded in the capture joins it. `mode` is one of `FLAGOS_VENDOR_CAPTURE_*`. Meanwhile these fail with
    /// `FLAGOS_VENDOR_UNSUPPORTED`, and change nothing: waiting for the device, a captured stream or an event recorded in
    /// the capture, asking whether one of the latter two has finished, and on captured streams copies of ordinary memory and
    /// `stream_host_function`.
    pub capture_begin:
        Option<unsafe extern "C" fn(stream: *mut FlagosVendorStream, mode: i32) -> i32>,
    /// With `FLAGOS_VENDOR_CAPTURES` or `FLAGOS_VENDOR_SEES_CAPTURES` writes the number of the capture that the stream belongs
    /// to, the same for all its streams and another one for each
    /// capture, 0 for none; and 1 while the capture is valid, or 0 when something has happened that it forbids.
    pub capture_status: Option<
        unsafe extern "C" fn(
            stream: *mut FlagosVendorStream,
            capture: *mut u64,
            valid: *mut i32,
        ) -> i32,
    >,
    /// Ends the capture that began on this stream. It is over after a failure too, unless the failure is that another thread
    /// began it. Fails when streams that joined have not come back, by an event for which this stream waits.
    pub capture_end: Option<
        unsafe extern "C" fn(
            stream: *mut FlagosVendorStream,
            graph: *mut *mut FlagosVendorGraph,
        ) -> i32,
    >,
    /// Queues a run of the graph on a stream of its device, which is not captured.
    pub graph_launch: Option<
        unsafe extern "C" fn(graph: *mut FlagosVendorGraph, stream: *mut FlagosVendorStream) -> i32,
    >,
    /// Gives a graph back. Queued runs still run. Does not wait itself.
    pub graph_destroy: Option<unsafe extern "C" fn(graph: *mut FlagosVendorGraph) -> i32>,

    /// With `FLAGOS_VENDOR_REACHES_PEERS` writes 1 when kernels of `device` address the memory of `peer`, another device, and
    /// 0 when they do not; else NULL.
    pub device_reaches: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            peer: i32,
            reaches: *mut i32,
        ) -> i32,
    >,
    /// With `FLAGOS_VENDOR_SHARES` describes the allocation of `memory_alloc` in which an address of `device` lies, for other
    /// processes of the machine; else NULL, as are the three functions below. The allocation stays until every process that
    /// imported it has closed it.
    pub memory_export: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            address: *const c_void,
            exported: *mut FlagosVendorExported,
        ) -> i32,
    >,
    /// Writes the address, in this process, of the allocation of another process that has this key and this many bytes. The
    /// same key again gives the same address, and each import is closed.
    pub memory_import: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            key: *const c_char,
            nbytes: usize,
            address: *mut *mut c_void,
        ) -> i32,
    >,
    /// Closes an import, after waiting for the device, whose queued work may use it.
    pub memory_close: Option<
        unsafe extern "C" fn(
            instance: *mut FlagosVendorInstance,
            device: i32,
            address: *mut c_void,
        ) -> i32,
    >,
    /// Closes every import that is left, when the process ends. `memory_close` does nothing afterwards.
    pub memory_close_all: Option<unsafe extern "C" fn(instance: *mut FlagosVendorInstance) -> i32>,
    /// The bytes by which kernels may read beyond the end of a tensor's memory, which the host keeps within the tensor's
    /// allocation; NULL for none. Since version 1.2.
    pub memory_padding: Option<unsafe extern "C" fn(instance: *mut FlagosVendorInstance) -> usize>,

    /// Whether a capability of the library, one of its bits, can be used on this machine: `FLAGOS_VENDOR_UNSUPPORTED`, with the
    /// reason as the text, where a library beneath it is too old. NULL: every one can. Since version 1.3.
    pub capability_check:
        Option<unsafe extern "C" fn(instance: *mut FlagosVendorInstance, capability: u64) -> i32>,
    /// What the library takes for granted of a library beneath it, whose header nobody publishes: `num_declarations`
    /// structs, each as long as the first says; NULL for nothing. `flagos vendor check` tries each out. Since version 1.3.
    pub declarations: *const FlagosVendorDeclaration,
    /// How many there are, at most 256.
    pub num_declarations: usize,
    /// Tries a declaration out on the first device, where no vendor is open. Writes what it shows, as UTF-8 and a NUL,
    /// into `shown`, which has room for `nbytes`. Fails where it is wrong, with the finding as its text. A wrong
    /// declaration may end the process. NULL without declarations.
    pub declaration_try:
        Option<unsafe extern "C" fn(index: usize, shown: *mut c_char, nbytes: usize) -> i32>,

    /// NULL.
    pub reserved: [*const c_void; 17],
}

/// Something that a library takes for granted of a library beneath it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FlagosVendorDeclaration {
    /// Size of this struct in the library.
    pub struct_size: usize,
    /// The function, number or structure, as the library beneath calls it.
    pub name: *const c_char,
    /// How it is known, as a letter: `B`, one program shows it; `C`, it is taken to be as that of another library.
    pub grade: i32,
    /// 0.
    pub reserved_word: i32,
}

/// Device memory as other processes know it.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosVendorExported {
    /// Size of this struct in the host.
    pub struct_size: usize,
    /// The key of an allocation, by which other processes import the whole of it: printable ASCII without spaces, then a NUL.
    pub key: [c_char; 256],
    /// The bytes from the beginning of the allocation to the address that was exported.
    pub offset: u64,
    /// The bytes of the allocation.
    pub nbytes: u64,
}

/// The one function that a library exports, named `flagos_vendor`. Returns its table, of a major version that the host
/// takes, or NULL, and then writes the reason (static text). Initialises nothing, and may be called again.
pub type FlagosVendorEntry = Option<
    unsafe extern "C" fn(
        host: *const FlagosVendorHost,
        reason: *mut *const c_char,
    ) -> *const FlagosVendor,
>;
