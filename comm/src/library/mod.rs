//! The engines of vendors: a library found at run time, whose work is queued on a device's streams.
//!
//! Each speaks its own dialect: [`nccl`] that of NCCL and of every library with its interface, [`flagcx`]
//! and [`hccl`] their own. What a dialect has no call for is composed of what it has, in [`communicator`].

mod bindings;
mod communicator;
mod flagcx;
mod hccl;
mod nccl;
mod search;

use std::ffi::{c_char, c_void};

use crate::store::share;
use crate::{Communicator, Config};
use crate::{DType, Error, ErrorKind, ReduceOp, Result, Store};

/// What rank 0's library makes for a new group, in the hands of every rank: an id of `N` bytes. All ranks call it.
fn share_id<const N: usize>(
    config: &Config,
    store: &dyn Store,
    engine: &str,
    make: impl FnOnce() -> Result<[c_char; N]>,
) -> Result<[c_char; N]> {
    let (bytes, _) = share(
        store,
        config.rank,
        config.size,
        config.timeout,
        engine,
        |_| Ok(make()?.map(|byte| byte as u8).to_vec()),
    )?;
    let told = bytes.len();
    let bytes: [u8; N] = bytes.try_into().map_err(|_| {
        Error::new(
            ErrorKind::Mismatch,
            format!("rank 0 told an id of {told} bytes, those of {engine} have {N}"),
        )
    })?;
    Ok(bytes.map(|byte| byte as c_char))
}

/// A communicator of a vendor's library, in the terms all of them share.
///
/// Counts are of elements of the type whose code is given. Calls return when they are queued.
#[allow(clippy::too_many_arguments, reason = "the libraries' own arguments")]
trait Dialect: Send + Sync {
    fn engine(&self) -> &'static str;
    fn library(&self) -> String;

    /// The library's code of a type, if it has the type.
    fn dtype(&self, dtype: DType) -> Option<i32>;

    /// The library's code of an operation, if it has the operation.
    fn op(&self, op: ReduceOp) -> Option<i32>;

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

    /// Ends the communicator's work. At most once, and nothing is called afterwards.
    fn abort(&self) -> Result<()>;
    fn async_error(&self) -> Result<()>;
}

/// Connects a rank through the library of `engine`.
pub fn connect(engine: &str, config: &Config, store: &dyn Store) -> Result<Box<dyn Communicator>> {
    let dialect: Box<dyn Dialect> = match engine {
        "nccl" => Box::new(nccl::Nccl::connect(config, store)?),
        "flagcx" => Box::new(flagcx::FlagCx::connect(config, store)?),
        "hccl" => Box::new(hccl::Hccl::connect(config, store)?),
        other => {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("{other} has no library"),
            ))
        }
    };
    Ok(Box::new(communicator::LibraryCommunicator::new(
        dialect, config,
    )))
}

/// Whether the library of `engine` can be opened, without connecting: its path and version, or why not.
pub fn probe(engine: &str, config: &Config) -> Result<String> {
    match engine {
        "nccl" => nccl::probe(config),
        "flagcx" => flagcx::probe(config),
        "hccl" => hccl::probe(config),
        other => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{other} is not an engine with a library"),
        )),
    }
}
