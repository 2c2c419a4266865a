//! FlagCX, which serves several vendors' devices in one group.
//!
//! Interface: flagcx.h of FlagCX 0.4 to 0.13, as `comm/bindings/flagcx.h` states it. The library's `GetVersion`
//! and `GetErrorString` return nothing useful, so this module judges a release by its symbols and its behaviour.

use std::cell::Cell;
use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicBool, Ordering};

use super::acl;
use super::bindings::flagcx::{self, Comm, DataType, RedOp, StreamStructure, UniqueId};
use super::dialect::Dialect;
use super::id::share_id;
use super::search::{functions, Opened};
use crate::Config;
use crate::{DType, Error, ErrorKind, ReduceOp, Result, Store};

const ID_BYTES: usize = size_of::<UniqueId>();

/// An id aligned for an address, which older releases write into it.
#[repr(align(8))]
struct Aligned(UniqueId);

functions! {
    flagcx:
    fn get_unique_id = GetUniqueId;
    fn comm_init_rank = CommInitRank;
    fn comm_destroy = CommDestroy;
    fn all_reduce = AllReduce;
    fn reduce = Reduce;
    fn broadcast = Broadcast;
    fn all_gather = AllGather;
    fn reduce_scatter = ReduceScatter;
    fn send = Send;
    fn recv = Recv;
    fn group_start = GroupStart;
    fn group_end = GroupEnd;
    optional comm_abort = CommAbort;
    optional comm_get_async_error = CommGetAsyncError;
    optional get_last_error = GetLastError;
}

/// The meaning of a `flagcxResult_t`, which the library does not tell.
fn meaning(code: flagcx::Result) -> &'static str {
    use flagcx::Result as Code;
    match code {
        Code::UnhandledDeviceError => "unhandled device error",
        Code::SystemError => "system error",
        Code::InternalError => "internal error",
        Code::InvalidArgument => "invalid argument",
        Code::InvalidUsage => "invalid usage",
        Code::RemoteError => "remote error",
        Code::UnhandledCclError => "unhandled error of the vendor's library",
        Code::NotSupported => "not supported",
        _ => "unknown result",
    }
}

thread_local! {
    /// How many groups of calls this thread has begun.
    static GROUPS: Cell<usize> = const { Cell::new(0) };
}

/// A communicator of FlagCX.
pub struct FlagCx {
    functions: Functions,
    communicator: Comm,
    library: String,
    /// Whether the vendor's library is HCCL. FlagCX's adaptor for it takes an average for a sum, and unsigned numbers of 32
    /// and 64 bits for `int8`; and it keeps transfers until a group ends.
    over_hccl: bool,
    /// Whether the communicator was ended. In 0.13 `Destroy` after `Abort` or `Finalize` frees memory twice, so that
    /// exactly one of them is called.
    ended: AtomicBool,
}

// SAFETY: the library may be called by any thread, one call at a time, as `LibraryCommunicator` does.
unsafe impl Send for FlagCx {}
// SAFETY: as above.
unsafe impl Sync for FlagCx {}

fn load(config: &Config) -> Result<(Functions, String)> {
    let library = Opened::open(config.library.as_deref(), &["libflagcx.so"])?;
    Ok((Functions::load(&library, "flagcx")?, library.name))
}

/// Opens the library. Returns its name.
pub fn probe(config: &Config) -> Result<String> {
    load(config).map(|(_, library)| library)
}

impl FlagCx {
    pub fn connect(config: &Config, store: &dyn Store) -> Result<Self> {
        let (functions, library) = load(config)?;
        let mut flagcx = Self {
            functions,
            communicator: std::ptr::null_mut(),
            library,
            over_hccl: config.vendor == acl::VENDOR,
            ended: AtomicBool::new(true),
        };
        let internal = share_id(config, store, "flagcx", || Ok(flagcx.unique_id()?.internal))?;
        let id = Aligned(UniqueId { internal });
        // SAFETY: the id is rank 0's; the caller has made the device current.
        let outcome = unsafe {
            (flagcx.functions.comm_init_rank)(
                &raw mut flagcx.communicator,
                config.size as c_int,
                &raw const id.0,
                config.rank as c_int,
            )
        };
        flagcx.check("CommInitRank", outcome)?;
        flagcx.ended = AtomicBool::new(false);
        Ok(flagcx)
    }

    /// Makes an id. Newer releases fill the id they are given, older releases allocate an id and write its address into
    /// the one they are given. Behind an address all bytes are 0, while the second word of an id, which begins with a
    /// number and an address family, is never 0.
    fn unique_id(&self) -> Result<UniqueId> {
        let mut id = Aligned(UniqueId {
            internal: [0; ID_BYTES],
        });
        // SAFETY: room for an id, which is room for an address too.
        self.check("GetUniqueId", unsafe {
            (self.functions.get_unique_id)(&raw mut id.0)
        })?;
        let bytes = id.0.internal.map(|byte| byte as u8);
        if bytes[8..].iter().any(|&byte| byte != 0) {
            return Ok(id.0);
        }
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[..8]);
        let allocated = usize::from_ne_bytes(word) as *mut UniqueId;
        if allocated.is_null() {
            return Err(Error::new(
                ErrorKind::Library,
                format!("GetUniqueId of {} gave no id", self.library),
            ));
        }
        // SAFETY: older releases allocate the id with calloc, and the caller owns it.
        unsafe {
            let id = *allocated;
            libc::free(allocated.cast());
            Ok(id)
        }
    }

    fn check(&self, what: &str, code: flagcx::Result) -> Result<()> {
        if code == flagcx::Result::Success || code == flagcx::Result::InProgress {
            return Ok(());
        }
        let last = self
            .functions
            .get_last_error
            .filter(|_| !self.communicator.is_null())
            .and_then(|get| {
                // SAFETY: the communicator is alive; the string is the library's own.
                let text = unsafe { get(self.communicator) };
                if text.is_null() {
                    return None;
                }
                // SAFETY: as above.
                let text = unsafe { CStr::from_ptr(text) };
                Some(text.to_string_lossy().into_owned())
            });
        let last = last.filter(|text| !text.is_empty() && text != "Not implemented.");
        let kind = if code == flagcx::Result::NotSupported {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Library
        };
        Err(Error::new(
            kind,
            format!(
                "{what} failed in {}: {} (code {}){}",
                self.library,
                meaning(code),
                code.0,
                last.map_or(String::new(), |text| format!(": {text}"))
            ),
        ))
    }
}

impl FlagCx {
    /// Runs a transfer within a group of calls, over HCCL also where the caller has begun none.
    fn in_group(&self, transfer: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.over_hccl || GROUPS.get() > 0 {
            return transfer();
        }
        self.group_start()?;
        let outcome = transfer();
        outcome.and(self.group_end())
    }
}

/// The vendor's stream in FlagCX's structure, which FlagCX reads before a call returns.
fn wrap(stream: *mut c_void) -> StreamStructure {
    StreamStructure { base: stream }
}

impl Dialect for FlagCx {
    fn engine(&self) -> &'static str {
        "flagcx"
    }

    fn library(&self) -> String {
        self.library.clone()
    }

    fn dtype(&self, dtype: DType) -> Option<i32> {
        let code = match dtype {
            DType::Int8 => DataType::Int8,
            DType::UInt8 | DType::Bool | DType::Bytes => DataType::UInt8,
            DType::Int32 => DataType::Int32,
            DType::UInt32 => DataType::UInt32,
            DType::Int64 => DataType::Int64,
            DType::UInt64 => DataType::UInt64,
            DType::Float16 => DataType::Float16,
            DType::Float32 => DataType::Float32,
            DType::Float64 => DataType::Float64,
            DType::BFloat16 => DataType::BFloat16,
            _ => return None,
        };
        let is_other = matches!(dtype, DType::UInt32 | DType::UInt64) && self.over_hccl;
        (!is_other).then_some(code.0 as i32)
    }

    fn reduced_dtype(&self, dtype: DType, op: ReduceOp) -> Option<i32> {
        match (dtype, op) {
            (DType::Bool, _) if self.over_hccl => self.dtype(DType::Int8),
            (DType::UInt8, _) | (DType::BFloat16, ReduceOp::Prod) if self.over_hccl => None,
            _ => self.dtype(dtype),
        }
    }

    fn op(&self, op: ReduceOp) -> Option<i32> {
        let code = match op {
            ReduceOp::Sum => RedOp::Sum,
            ReduceOp::Prod => RedOp::Prod,
            ReduceOp::Max => RedOp::Max,
            ReduceOp::Min => RedOp::Min,
            ReduceOp::Avg if !self.over_hccl => RedOp::Avg,
            _ => return None,
        };
        Some(code.0 as i32)
    }

    unsafe fn all_reduce(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        op: i32,
        stream: *mut c_void,
    ) -> Result<()> {
        let stream = wrap(stream);
        // SAFETY: the caller's promise about the buffers, here and below.
        self.check("AllReduce", unsafe {
            (self.functions.all_reduce)(
                send.cast(),
                recv.cast(),
                count,
                DataType(dtype as u32),
                RedOp(op as u32),
                self.communicator,
                &raw const stream,
            )
        })
    }

    unsafe fn reduce(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        op: i32,
        root: usize,
        stream: *mut c_void,
    ) -> Result<()> {
        let stream = wrap(stream);
        // SAFETY: see all_reduce.
        self.check("Reduce", unsafe {
            (self.functions.reduce)(
                send.cast(),
                recv.cast(),
                count,
                DataType(dtype as u32),
                RedOp(op as u32),
                root as c_int,
                self.communicator,
                &raw const stream,
            )
        })
    }

    unsafe fn broadcast(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        root: usize,
        stream: *mut c_void,
    ) -> Result<()> {
        let stream = wrap(stream);
        // SAFETY: see all_reduce.
        self.check("Broadcast", unsafe {
            (self.functions.broadcast)(
                send.cast(),
                recv.cast(),
                count,
                DataType(dtype as u32),
                root as c_int,
                self.communicator,
                &raw const stream,
            )
        })
    }

    unsafe fn all_gather(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        stream: *mut c_void,
    ) -> Result<()> {
        let stream = wrap(stream);
        // SAFETY: see all_reduce.
        self.check("AllGather", unsafe {
            (self.functions.all_gather)(
                send.cast(),
                recv.cast(),
                count,
                DataType(dtype as u32),
                self.communicator,
                &raw const stream,
            )
        })
    }

    unsafe fn reduce_scatter(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        op: i32,
        stream: *mut c_void,
    ) -> Result<()> {
        let stream = wrap(stream);
        // SAFETY: see all_reduce.
        self.check("ReduceScatter", unsafe {
            (self.functions.reduce_scatter)(
                send.cast(),
                recv.cast(),
                count,
                DataType(dtype as u32),
                RedOp(op as u32),
                self.communicator,
                &raw const stream,
            )
        })
    }

    unsafe fn send(
        &self,
        send: *const u8,
        count: usize,
        dtype: i32,
        peer: usize,
        stream: *mut c_void,
    ) -> Result<()> {
        self.in_group(|| {
            let stream = wrap(stream);
            // SAFETY: see all_reduce.
            self.check("Send", unsafe {
                (self.functions.send)(
                    send.cast(),
                    count,
                    DataType(dtype as u32),
                    peer as c_int,
                    self.communicator,
                    &raw const stream,
                )
            })
        })
    }

    unsafe fn recv(
        &self,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        peer: usize,
        stream: *mut c_void,
    ) -> Result<()> {
        self.in_group(|| {
            let stream = wrap(stream);
            // SAFETY: see all_reduce.
            self.check("Recv", unsafe {
                (self.functions.recv)(
                    recv.cast(),
                    count,
                    DataType(dtype as u32),
                    peer as c_int,
                    self.communicator,
                    &raw const stream,
                )
            })
        })
    }

    fn group_start(&self) -> Result<()> {
        // SAFETY: the communicator is alive.
        self.check("GroupStart", unsafe {
            (self.functions.group_start)(self.communicator)
        })?;
        GROUPS.set(GROUPS.get() + 1);
        Ok(())
    }

    fn group_end(&self) -> Result<()> {
        GROUPS.set(GROUPS.get().saturating_sub(1));
        // SAFETY: the communicator is alive.
        self.check("GroupEnd", unsafe {
            (self.functions.group_end)(self.communicator)
        })
    }

    fn abort(&self) -> Result<()> {
        if self.ended.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        match self.functions.comm_abort {
            // SAFETY: ended once, and not used afterwards.
            Some(abort) => self.check("CommAbort", unsafe { abort(self.communicator) }),
            None => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} has no CommAbort", self.library),
            )),
        }
    }

    fn async_error(&self) -> Result<()> {
        let Some(get) = self
            .functions
            .comm_get_async_error
            .filter(|_| !self.ended.load(Ordering::Acquire))
        else {
            return Ok(());
        };
        let mut error = flagcx::Result::Success;
        // SAFETY: the communicator is alive; writes one integer.
        let asked = unsafe { get(self.communicator, &raw mut error) };
        if asked == flagcx::Result::NotSupported {
            return Ok(()); // a heterogeneous group does not tell
        }
        self.check("CommGetAsyncError", asked)?;
        self.check("an earlier call", error)
    }
}

impl Drop for FlagCx {
    fn drop(&mut self) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            // SAFETY: ended once; all of its work has finished.
            unsafe { (self.functions.comm_destroy)(self.communicator) };
        }
    }
}
