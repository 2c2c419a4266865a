// Generated from comm/bindings/nccl.h by `make bindings`: do not edit.

impl Result {
    pub const Success: Result = Result(0);
    pub const InProgress: Result = Result(7);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct Result(pub ::core::ffi::c_uint);
impl DataType {
    pub const Int8: DataType = DataType(0);
    pub const UInt8: DataType = DataType(1);
    pub const Int32: DataType = DataType(2);
    pub const UInt32: DataType = DataType(3);
    pub const Int64: DataType = DataType(4);
    pub const UInt64: DataType = DataType(5);
    pub const Float16: DataType = DataType(6);
    pub const Float32: DataType = DataType(7);
    pub const Float64: DataType = DataType(8);
    pub const BFloat16: DataType = DataType(9);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct DataType(pub ::core::ffi::c_uint);
impl RedOp {
    pub const Sum: RedOp = RedOp(0);
    pub const Prod: RedOp = RedOp(1);
    pub const Max: RedOp = RedOp(2);
    pub const Min: RedOp = RedOp(3);
    pub const Avg: RedOp = RedOp(4);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct RedOp(pub ::core::ffi::c_uint);
impl ScalarResidence {
    pub const ScalarDevice: ScalarResidence = ScalarResidence(0);
    pub const ScalarHostImmediate: ScalarResidence = ScalarResidence(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ScalarResidence(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct UniqueId {
    pub internal: [::core::ffi::c_char; 128usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of UniqueId"][::core::mem::size_of::<UniqueId>() - 128usize];
    ["Alignment of UniqueId"][::core::mem::align_of::<UniqueId>() - 1usize];
    [
        "Offset of field: UniqueId::internal",
    ][::core::mem::offset_of!(UniqueId, internal) - 0usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CommStructure {
    _unused: [u8; 0],
}
pub type Comm = *mut CommStructure;
pub type Stream = *mut ::core::ffi::c_void;
pub type GetVersion = unsafe extern "C" fn(version: *mut ::core::ffi::c_int) -> Result;
pub type GetUniqueId = unsafe extern "C" fn(id: *mut UniqueId) -> Result;
pub type GetErrorString = unsafe extern "C" fn(
    result: Result,
) -> *const ::core::ffi::c_char;
pub type GetLastError = unsafe extern "C" fn(comm: Comm) -> *const ::core::ffi::c_char;
pub type CommInitRank = unsafe extern "C" fn(
    comm: *mut Comm,
    size: ::core::ffi::c_int,
    id: UniqueId,
    rank: ::core::ffi::c_int,
) -> Result;
pub type CommDestroy = unsafe extern "C" fn(comm: Comm) -> Result;
pub type CommAbort = unsafe extern "C" fn(comm: Comm) -> Result;
pub type CommGetAsyncError = unsafe extern "C" fn(
    comm: Comm,
    error: *mut Result,
) -> Result;
pub type RedOpCreatePreMulSum = unsafe extern "C" fn(
    op: *mut RedOp,
    scalar: *mut ::core::ffi::c_void,
    type_: DataType,
    residence: ScalarResidence,
    comm: Comm,
) -> Result;
pub type RedOpDestroy = unsafe extern "C" fn(op: RedOp, comm: Comm) -> Result;
pub type AllReduce = unsafe extern "C" fn(
    send: *const ::core::ffi::c_void,
    recv: *mut ::core::ffi::c_void,
    count: usize,
    type_: DataType,
    op: RedOp,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type Reduce = unsafe extern "C" fn(
    send: *const ::core::ffi::c_void,
    recv: *mut ::core::ffi::c_void,
    count: usize,
    type_: DataType,
    op: RedOp,
    root: ::core::ffi::c_int,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type Broadcast = unsafe extern "C" fn(
    send: *const ::core::ffi::c_void,
    recv: *mut ::core::ffi::c_void,
    count: usize,
    type_: DataType,
    root: ::core::ffi::c_int,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type AllGather = unsafe extern "C" fn(
    send: *const ::core::ffi::c_void,
    recv: *mut ::core::ffi::c_void,
    count: usize,
    type_: DataType,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type ReduceScatter = unsafe extern "C" fn(
    send: *const ::core::ffi::c_void,
    recv: *mut ::core::ffi::c_void,
    count: usize,
    type_: DataType,
    op: RedOp,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type Send = unsafe extern "C" fn(
    send: *const ::core::ffi::c_void,
    count: usize,
    type_: DataType,
    peer: ::core::ffi::c_int,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type Recv = unsafe extern "C" fn(
    recv: *mut ::core::ffi::c_void,
    count: usize,
    type_: DataType,
    peer: ::core::ffi::c_int,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type GroupStart = unsafe extern "C" fn() -> Result;
pub type GroupEnd = unsafe extern "C" fn() -> Result;
