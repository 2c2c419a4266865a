//! The common interface of the vendors' libraries.

use std::ffi::c_void;

use crate::{DType, Error, ErrorKind, ReduceOp, Result};

/// A communicator of a vendor's library, in terms that all libraries share.
///
/// Counts are numbers of elements of the type `dtype`, a code of the library. Calls return once they are queued.
#[allow(clippy::too_many_arguments, reason = "the libraries' own arguments")]
pub(super) trait Dialect: Send + Sync {
    fn engine(&self) -> &'static str;
    fn library(&self) -> String;

    /// The library's code of a type, if it has the type.
    fn dtype(&self, dtype: DType) -> Option<i32>;

    /// The code under which the library reduces a type by an operation, if it does.
    fn reduced_dtype(&self, dtype: DType, _op: ReduceOp) -> Option<i32> {
        self.dtype(dtype)
    }

    /// The library's code of an operation, if it has the operation.
    fn op(&self, op: ReduceOp) -> Option<i32>;

    /// Whether [`Dialect::premul`] makes codes.
    fn has_premul(&self) -> bool {
        false
    }

    /// A code for [`ReduceOp::PremulSum`] with this factor, to be given to [`Dialect::drop_premul`] afterwards.
    fn premul(&self, _factor: f64, _dtype: DType) -> Result<i32> {
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} has no premul_sum", self.library()),
        ))
    }

    fn drop_premul(&self, _op: i32) {}

    unsafe fn all_reduce(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        op: i32,
        stream: *mut c_void,
    ) -> Result<()>;
    unsafe fn reduce(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        op: i32,
        root: usize,
        stream: *mut c_void,
    ) -> Result<()>;
    unsafe fn broadcast(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        root: usize,
        stream: *mut c_void,
    ) -> Result<()>;
    unsafe fn all_gather(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        stream: *mut c_void,
    ) -> Result<()>;
    unsafe fn reduce_scatter(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        op: i32,
        stream: *mut c_void,
    ) -> Result<()>;
    unsafe fn send(
        &self,
        send: *const u8,
        count: usize,
        dtype: i32,
        peer: usize,
        stream: *mut c_void,
    ) -> Result<()>;
    unsafe fn recv(
        &self,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        peer: usize,
        stream: *mut c_void,
    ) -> Result<()>;
    fn group_start(&self) -> Result<()>;
    fn group_end(&self) -> Result<()>;

    /// Ends the communicator's work. Called at most once, and as the last call.
    fn abort(&self) -> Result<()>;
    fn async_error(&self) -> Result<()>;
}
