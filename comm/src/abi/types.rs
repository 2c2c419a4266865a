//! The types of `include/flagos_comm.h`, which is generated from this file and from the enumerations that Rust and C
//! share: [`crate::Kind`], [`crate::DType`] and [`crate::ReduceOp`], in C with the prefix `FlagosComm`.

use std::ffi::{c_char, c_void};

/// Version of the table's layout. Fields are only ever appended; anything else raises this number.
pub const FLAGOS_COMM_ABI_VERSION: u32 = 4;

/// Status: success.
pub const FLAGOS_COMM_OK: i32 = 0;
/// Status: an argument is wrong.
pub const FLAGOS_COMM_INVALID_ARGUMENT: i32 = 1;
/// Status: the engine does not support the call, and has sent nothing.
pub const FLAGOS_COMM_UNSUPPORTED: i32 = 2;
/// Status: a rank did not make its call within the time-out.
pub const FLAGOS_COMM_TIMEOUT: i32 = 3;
/// Status: a rank's process has ended.
pub const FLAGOS_COMM_PEER_LOST: i32 = 4;
/// Status: ranks called different collectives, or with different arguments.
pub const FLAGOS_COMM_MISMATCH: i32 = 5;
/// Status: the group was aborted, here or by another rank.
pub const FLAGOS_COMM_ABORTED: i32 = 6;
/// Status: a vendor's library failed.
pub const FLAGOS_COMM_LIBRARY: i32 = 7;
/// Status: the operating system or the store failed.
pub const FLAGOS_COMM_SYSTEM: i32 = 8;
/// Status: a defect in flagos, such as a caught panic.
pub const FLAGOS_COMM_INTERNAL: i32 = 9;

/// `FlagosCollective::root`: from any rank.
pub const FLAGOS_COMM_ANY_RANK: i32 = -1;

/// The communicators of a group that a request concerns.
#[repr(u32)]
pub enum FlagosCommSide {
    /// The communicator on host memory.
    Host = 0,
    /// The communicators on devices.
    Devices = 1,
}

/// One call. A list has one entry for each rank where the collective has one part for each rank, otherwise one
/// entry. It is empty where this rank sends or receives nothing.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosCollective {
    /// A `FlagosCommKind`.
    pub kind: u32,
    /// A `FlagosCommDType`.
    pub dtype: u32,
    /// A `FlagosCommReduce`; 0 where nothing is reduced.
    pub reduce: u32,
    /// The root, or the other rank of a transfer.
    pub root: i32,
    /// The tag of a transfer.
    pub tag: i32,
    /// Entries of `send`.
    pub sends: u32,
    /// Entries of `recv`.
    pub receives: u32,
    /// Always 0.
    pub reserved: u32,
    /// Elements of each part.
    pub count: u64,
    /// The factor of `FlagosCommReduce_PremulSum`.
    pub factor: f64,
    /// The number of this call in its group, for messages.
    pub sequence: u64,
    /// The longest time to wait for other ranks, in milliseconds.
    pub timeout_ms: u64,
    /// The addresses of data to send.
    pub send: *const *const c_void,
    /// The addresses of received data.
    pub recv: *const *mut c_void,
    /// Elements to each rank, for all-to-all; otherwise NULL.
    pub send_counts: *const u64,
    /// Elements from each rank, for all-to-all; otherwise NULL.
    pub recv_counts: *const u64,
}

/// The framework's key-value store, with keys of one group, for any thread. `set` and `get` return 0 on success. After a
/// failure they write a message into `error`, which has room for `capacity` bytes, and return `FLAGOS_COMM_TIMEOUT` when
/// a key did not come in time, any other number when the store cannot be used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FlagosCommStore {
    /// Given back to the functions.
    pub context: *mut c_void,
    /// Writes a value.
    pub set: unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_char,
        value: *const u8,
        length: u64,
        error: *mut c_char,
        capacity: u64,
    ) -> i32,
    /// Waits for a key and hands its value to `take`, once, with `taker`.
    pub get: unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_char,
        timeout_ms: u64,
        take: unsafe extern "C" fn(taker: *mut c_void, value: *const u8, length: u64),
        taker: *mut c_void,
        error: *mut c_char,
        capacity: u64,
    ) -> i32,
    /// Called when the store is not needed any more.
    pub release: unsafe extern "C" fn(context: *mut c_void),
}

/// The description of a group. Strings are NUL-terminated UTF-8, read before `group_open` returns.
#[repr(C)]
pub struct FlagosCommConfig {
    /// The name of the engine on devices; NULL or empty where the vendor decides.
    pub engine: *const c_char,
    /// The file of that engine's library; NULL or empty where it is searched by name.
    pub library: *const c_char,
    /// The vendor of the devices' memory, for messages.
    pub vendor: *const c_char,
    /// The engine for that memory, which the vendor's description names; NULL or empty for none.
    pub vendor_engine: *const c_char,
    /// The name of the group, for messages.
    pub group: *const c_char,
    /// The folder for the report of a call that fails; NULL or empty for none.
    pub dump: *const c_char,
    /// The number of this rank.
    pub rank: u32,
    /// The number of ranks in the group.
    pub size: u32,
    /// The longest time to wait for the other ranks to connect, in milliseconds.
    pub timeout_ms: u64,
    /// Bytes of a window of the engine `shm`; 0 for the default.
    pub window: u64,
    /// Makes a device the current one of the calling thread. Returns a number as the store's functions do.
    pub use_device: unsafe extern "C" fn(device: i32, error: *mut c_char, capacity: u64) -> i32,
}

/// The callbacks for the end of a queued call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FlagosCommWaiter {
    /// Given back to the functions.
    pub context: *mut c_void,
    /// Called once, on a thread of the group, when the call has ended: with its status, whose message is in `last_error`,
    /// and with the rank that sent to a receive from any rank, or -1. Returns 1 when `after` is to be called.
    pub ended: unsafe extern "C" fn(context: *mut c_void, status: i32, source: i32) -> i32,
    /// Runs callbacks of the program, which may wait for other calls of the group.
    pub after: unsafe extern "C" fn(context: *mut c_void),
}

/// A reduction that an engine has for a call, and the work that is left to the caller.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct FlagosCommLowered {
    /// The `FlagosCommReduce` to call with.
    pub reduce: u32,
    /// 1 when the caller multiplies the data to send by the call's factor.
    pub scale_sends: u32,
    /// 1 when the caller divides the result by the number of ranks.
    pub divide_result: u32,
    /// 1 when the caller gathers the data of all ranks, and reduces them in the order of the ranks.
    pub gathers: u32,
}

/// One rank's end of a process group; opaque.
pub struct FlagosCommGroup {
    pub(super) group: crate::Group,
}

/// A communicator of a group on a device; opaque, as long-lived as the group.
pub struct FlagosCommEndpoint {
    _opaque: [u8; 0],
}

/// The functions. A function returning `int32_t` returns a status unless its comment says otherwise; the message of a
/// failure is in `last_error`.
#[repr(C)]
pub struct FlagosCommApi {
    /// Bytes of this structure in the library.
    pub struct_size: u64,
    /// `FLAGOS_COMM_ABI_VERSION` of that library.
    pub abi_version: u32,
    /// The message of this thread's last failure; valid until its next one.
    pub last_error: extern "C" fn() -> *const c_char,
    /// Frees a string of this table.
    pub string_free: unsafe extern "C" fn(string: *mut c_char),
    /// Connects this rank to its group on host memory. The store is released when it is not needed any more, also after
    /// a failure.
    pub group_open: unsafe extern "C" fn(
        config: *const FlagosCommConfig,
        store: *const FlagosCommStore,
        out: *mut *mut FlagosCommGroup,
    ) -> i32,
    /// Closes the group. Calls queued on host memory are finished first. No call may be queued on a device.
    pub group_close: unsafe extern "C" fn(group: *mut FlagosCommGroup),
    /// Fails, with the reason, when the ranks share no host memory.
    pub host: unsafe extern "C" fn(group: *const FlagosCommGroup) -> i32,
    /// 1 when no collective on host memory is queued or running, so that `host_run` keeps the order; else 0.
    pub host_is_idle: unsafe extern "C" fn(group: *const FlagosCommGroup) -> i32,
    /// Runs a collective on host memory, on this thread.
    pub host_run:
        unsafe extern "C" fn(group: *const FlagosCommGroup, call: *const FlagosCollective) -> i32,
    /// Queues a call on host memory. The call and its lists stay valid until `waiter` is called. When this function
    /// itself fails, `waiter` is not called.
    pub host_queue: unsafe extern "C" fn(
        group: *const FlagosCommGroup,
        call: *const FlagosCollective,
        asynchronous: i32,
        waiter: *const FlagosCommWaiter,
    ) -> i32,
    /// The communicator on `device` of all ranks (`peer` is `FLAGOS_COMM_ANY_RANK`), or of this one and `peer`, with
    /// the number of this rank and of all ranks in it. The first call connects it within `timeout_ms`.
    pub endpoint: unsafe extern "C" fn(
        group: *const FlagosCommGroup,
        device: i32,
        peer: i32,
        timeout_ms: u64,
        out: *mut *const FlagosCommEndpoint,
        rank: *mut i32,
        size: *mut i32,
    ) -> i32,
    /// The reduction that the engine runs for a call, and the work that is left to the caller.
    pub lower: unsafe extern "C" fn(
        endpoint: *const FlagosCommEndpoint,
        call: *const FlagosCollective,
        out: *mut FlagosCommLowered,
    ) -> i32,
    /// Queues `count` calls on a stream, as one group when `grouped` is 1. `stream` is the vendor's own handle.
    pub submit: unsafe extern "C" fn(
        endpoint: *const FlagosCommEndpoint,
        calls: *const FlagosCollective,
        count: u64,
        grouped: i32,
        stream: *mut c_void,
    ) -> i32,
    /// Notes a call on a device in the flight recorder and writes its number.
    pub record_begin: unsafe extern "C" fn(
        group: *const FlagosCommGroup,
        call: *const FlagosCollective,
        asynchronous: i32,
        number: *mut u64,
    ) -> i32,
    /// Notes the end of the call with this number.
    pub record_end: unsafe extern "C" fn(group: *const FlagosCommGroup, number: u64, well: i32),
    /// Reports a failure on a device, once in the group's life: to standard error and into the folder `dump`.
    pub report: unsafe extern "C" fn(group: *const FlagosCommGroup, why: *const c_char),
    /// Ends all calls of one `FlagosCommSide`, with a reason.
    pub abort:
        unsafe extern "C" fn(group: *const FlagosCommGroup, side: u32, reason: *const c_char),
    /// A failure of one `FlagosCommSide` that happened after a call had returned.
    pub async_error: unsafe extern "C" fn(group: *const FlagosCommGroup, side: u32) -> i32,
    /// Waits for all ranks. Fails with the missing ranks: all of them when `wait_for_all` is 1, otherwise the first. All
    /// ranks call it.
    pub monitored_barrier: unsafe extern "C" fn(
        group: *const FlagosCommGroup,
        timeout_ms: i64,
        wait_for_all: i32,
    ) -> i32,
    /// The last calls and the state of the ranks, as JSON; free it with `string_free`.
    pub state_json:
        unsafe extern "C" fn(group: *const FlagosCommGroup, out: *mut *mut c_char) -> i32,
}
