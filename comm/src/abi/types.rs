//! The types of `include/flagos_comm.h`, which is generated from this file.

use std::ffi::{c_char, c_void};

/// Version of the table's layout. Fields are only ever appended; anything else raises this number.
pub const FLAGOS_COMM_ABI_VERSION: u32 = 1;

/// Status: success.
pub const FLAGOS_COMM_OK: i32 = 0;
/// Status: the caller passed something that cannot be served.
pub const FLAGOS_COMM_INVALID_ARGUMENT: i32 = 1;
/// Status: the engine cannot do this; nothing has been sent.
pub const FLAGOS_COMM_UNSUPPORTED: i32 = 2;
/// Status: a rank did not come within the timeout.
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
/// Status: a bug in flagos (a caught panic).
pub const FLAGOS_COMM_INTERNAL: i32 = 9;

/// `FlagosCollective::root`: from any rank.
pub const FLAGOS_COMM_ANY_RANK: i32 = -1;

/// `FlagosCollective::kind`.
#[repr(u32)]
#[allow(missing_docs, reason = "see `crate::Kind`")]
pub enum FlagosCommKind {
    AllReduce = 0,
    Broadcast = 1,
    Reduce = 2,
    AllGather = 3,
    Gather = 4,
    Scatter = 5,
    ReduceScatter = 6,
    AllToAll = 7,
    Barrier = 8,
    Send = 9,
    Recv = 10,
}

/// `FlagosCollective::dtype`, with torch's names.
#[repr(u32)]
#[allow(missing_docs, reason = "see `crate::DType`")]
pub enum FlagosCommDType {
    UInt8 = 0,
    Int8 = 1,
    Int16 = 2,
    Int32 = 3,
    Int64 = 4,
    UInt16 = 5,
    UInt32 = 6,
    UInt64 = 7,
    Float16 = 8,
    BFloat16 = 9,
    Float32 = 10,
    Float64 = 11,
    Bool = 12,
    Complex64 = 13,
    Complex128 = 14,
    Float8E4M3Fn = 15,
    Float8E5M2 = 16,
    Float8E4M3FnUz = 17,
    Float8E5M2FnUz = 18,
    /// Anything else, counted in bytes.
    Bytes = 19,
}

/// `FlagosCollective::reduce`.
#[repr(u32)]
#[allow(missing_docs, reason = "see `crate::ReduceOp`")]
pub enum FlagosCommReduce {
    Sum = 0,
    Avg = 1,
    Prod = 2,
    Min = 3,
    Max = 4,
    BitAnd = 5,
    BitOr = 6,
    BitXor = 7,
    PremulSum = 8,
}

/// One call. Lists have one entry a rank where the collective has one part a rank, otherwise one entry; a
/// rank that only sends or only receives in this call gives an empty one.
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
    /// Of a transfer.
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
    /// How long to wait for other ranks, in milliseconds.
    pub timeout_ms: u64,
    /// What goes out.
    pub send: *const *const c_void,
    /// Where it comes in.
    pub recv: *const *mut c_void,
    /// Elements to each rank, for all-to-all; otherwise NULL.
    pub send_counts: *const u64,
    /// Elements from each rank, for all-to-all; otherwise NULL.
    pub recv_counts: *const u64,
}

/// The framework's key-value store, with keys of one group. Both functions return 0, or anything else after
/// they have written a message into `error`, which has room for `capacity` bytes: `FLAGOS_COMM_TIMEOUT` says that
/// a key did not come in time, everything else that the store cannot be used.
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
}

/// What a communicator is made of. Strings are NUL-terminated UTF-8, read before `connect` returns.
#[repr(C)]
pub struct FlagosCommConfig {
    /// The engine's name; NULL or empty lets the memory decide.
    pub engine: *const c_char,
    /// The file of the engine's library; NULL or empty searches.
    pub library: *const c_char,
    /// The vendor whose memory the buffers are.
    pub vendor: *const c_char,
    /// The name of the group, for messages.
    pub group: *const c_char,
    /// This rank.
    pub rank: u32,
    /// Ranks of the group.
    pub size: u32,
    /// How long to wait for the others to connect, in milliseconds.
    pub timeout_ms: u64,
    /// Bytes of a window of the engine `shm`; 0 for the default.
    pub window: u64,
}

/// One rank's end of a group; opaque.
pub struct FlagosComm {
    pub(super) communicator: Box<dyn crate::Communicator>,
}

/// The functions. Those that return `int32_t` return a status; the message is in `last_error`.
#[repr(C)]
pub struct FlagosCommApi {
    /// Bytes of this structure in the library that made it.
    pub struct_size: u64,
    /// `FLAGOS_COMM_ABI_VERSION` of that library.
    pub abi_version: u32,
    /// The message of this thread's last failure; valid until its next one.
    pub last_error: extern "C" fn() -> *const c_char,
    /// The rank that failure is due to, or -1.
    pub last_culprit: extern "C" fn() -> i32,
    /// Frees a string of this table.
    pub string_free: unsafe extern "C" fn(string: *mut c_char),
    /// Connects this rank to its group, with the device of the buffers current.
    pub connect: unsafe extern "C" fn(
        config: *const FlagosCommConfig,
        store: *const FlagosCommStore,
        out: *mut *mut FlagosComm,
    ) -> i32,
    /// Disconnects. No call is running or queued any more.
    pub disconnect: unsafe extern "C" fn(comm: *mut FlagosComm),
    /// The engine's name, static.
    pub engine: unsafe extern "C" fn(comm: *const FlagosComm) -> *const c_char,
    /// 1 when calls are queued on a stream, 0 when they are done on return.
    pub on_streams: unsafe extern "C" fn(comm: *const FlagosComm) -> i32,
    /// Runs or queues a call. `stream` is the vendor's own, or NULL for an engine without streams.
    pub run: unsafe extern "C" fn(
        comm: *const FlagosComm,
        call: *const FlagosCollective,
        stream: *mut c_void,
    ) -> i32,
    /// Runs a receive from any rank and writes whose it was.
    pub receive_any: unsafe extern "C" fn(
        comm: *const FlagosComm,
        call: *const FlagosCollective,
        source: *mut i32,
    ) -> i32,
    /// Begins calls that may be queued as one, of this thread.
    pub group_start: unsafe extern "C" fn(comm: *const FlagosComm) -> i32,
    /// Ends them.
    pub group_end: unsafe extern "C" fn(comm: *const FlagosComm) -> i32,
    /// Ends all calls of the group with a reason.
    pub abort: unsafe extern "C" fn(comm: *const FlagosComm, reason: *const c_char),
    /// A failure that happened after a call had returned.
    pub async_error: unsafe extern "C" fn(comm: *const FlagosComm) -> i32,
    /// What is known of the ranks, as JSON; to be freed with `string_free`.
    pub state_json: unsafe extern "C" fn(comm: *const FlagosComm, out: *mut *mut c_char) -> i32,
    /// Whether the engine of `config` can be used here: NULL or an empty string when it cannot, with the
    /// reason in `last_error`; else what serves it. To be freed with `string_free`.
    pub probe: unsafe extern "C" fn(config: *const FlagosCommConfig, out: *mut *mut c_char) -> i32,
}
