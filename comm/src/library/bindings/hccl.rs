// Generated from comm/bindings/hccl.h by `make bindings`: do not edit.

impl Result {
    pub const Success: Result = Result(0);
    pub const NotSupport: Result = Result(5);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct Result(pub ::core::ffi::c_uint);
impl DataType {
    pub const Int8: DataType = DataType(0);
    pub const Int16: DataType = DataType(1);
    pub const Int32: DataType = DataType(2);
    pub const Float16: DataType = DataType(3);
    pub const Float32: DataType = DataType(4);
    pub const Int64: DataType = DataType(5);
    pub const UInt64: DataType = DataType(6);
    pub const UInt8: DataType = DataType(7);
    pub const UInt16: DataType = DataType(8);
    pub const UInt32: DataType = DataType(9);
    pub const Float64: DataType = DataType(10);
    pub const BFloat16: DataType = DataType(11);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct DataType(pub ::core::ffi::c_uint);
impl ReduceOp {
    pub const Sum: ReduceOp = ReduceOp(0);
    pub const Prod: ReduceOp = ReduceOp(1);
    pub const Max: ReduceOp = ReduceOp(2);
    pub const Min: ReduceOp = ReduceOp(3);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ReduceOp(pub ::core::ffi::c_uint);
impl Direction {
    pub const SendItem: Direction = Direction(0);
    pub const RecvItem: Direction = Direction(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct Direction(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct RootInfo {
    pub internal: [::core::ffi::c_char; 4108usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of RootInfo"][::core::mem::size_of::<RootInfo>() - 4108usize];
    ["Alignment of RootInfo"][::core::mem::align_of::<RootInfo>() - 1usize];
    [
        "Offset of field: RootInfo::internal",
    ][::core::mem::offset_of!(RootInfo, internal) - 0usize];
};
pub type Comm = *mut ::core::ffi::c_void;
pub type Stream = *mut ::core::ffi::c_void;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct SendRecvItem {
    pub direction: Direction,
    pub buffer: *mut ::core::ffi::c_void,
    pub count: u64,
    pub type_: DataType,
    pub peer: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SendRecvItem"][::core::mem::size_of::<SendRecvItem>() - 32usize];
    ["Alignment of SendRecvItem"][::core::mem::align_of::<SendRecvItem>() - 8usize];
    [
        "Offset of field: SendRecvItem::direction",
    ][::core::mem::offset_of!(SendRecvItem, direction) - 0usize];
    [
        "Offset of field: SendRecvItem::buffer",
    ][::core::mem::offset_of!(SendRecvItem, buffer) - 8usize];
    [
        "Offset of field: SendRecvItem::count",
    ][::core::mem::offset_of!(SendRecvItem, count) - 16usize];
    [
        "Offset of field: SendRecvItem::type_",
    ][::core::mem::offset_of!(SendRecvItem, type_) - 24usize];
    [
        "Offset of field: SendRecvItem::peer",
    ][::core::mem::offset_of!(SendRecvItem, peer) - 28usize];
};
pub type GetErrorString = unsafe extern "C" fn(
    result: Result,
) -> *const ::core::ffi::c_char;
pub type GetRootInfo = unsafe extern "C" fn(info: *mut RootInfo) -> Result;
pub type CommInitRootInfo = unsafe extern "C" fn(
    size: u32,
    info: *const RootInfo,
    rank: u32,
    comm: *mut Comm,
) -> Result;
pub type CommDestroy = unsafe extern "C" fn(comm: Comm) -> Result;
pub type GetCommAsyncError = unsafe extern "C" fn(
    comm: Comm,
    error: *mut Result,
) -> Result;
pub type AllReduce = unsafe extern "C" fn(
    send: *mut ::core::ffi::c_void,
    recv: *mut ::core::ffi::c_void,
    count: u64,
    type_: DataType,
    op: ReduceOp,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type Reduce = unsafe extern "C" fn(
    send: *mut ::core::ffi::c_void,
    recv: *mut ::core::ffi::c_void,
    count: u64,
    type_: DataType,
    op: ReduceOp,
    root: u32,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type Broadcast = unsafe extern "C" fn(
    buffer: *mut ::core::ffi::c_void,
    count: u64,
    type_: DataType,
    root: u32,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type AllGather = unsafe extern "C" fn(
    send: *mut ::core::ffi::c_void,
    recv: *mut ::core::ffi::c_void,
    count: u64,
    type_: DataType,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type ReduceScatter = unsafe extern "C" fn(
    send: *mut ::core::ffi::c_void,
    recv: *mut ::core::ffi::c_void,
    count: u64,
    type_: DataType,
    op: ReduceOp,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type Send = unsafe extern "C" fn(
    send: *mut ::core::ffi::c_void,
    count: u64,
    type_: DataType,
    peer: u32,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type Recv = unsafe extern "C" fn(
    recv: *mut ::core::ffi::c_void,
    count: u64,
    type_: DataType,
    peer: u32,
    comm: Comm,
    stream: Stream,
) -> Result;
pub type BatchSendRecv = unsafe extern "C" fn(
    items: *mut SendRecvItem,
    count: u32,
    comm: Comm,
    stream: Stream,
) -> Result;
