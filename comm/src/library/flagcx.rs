//! FlagCX, which serves several vendors' devices in one group.
//!
//! Interface: flagcx.h of FlagCX 0.4 to 0.13, as `comm/bindings/flagcx.h` states it. The library's `GetVersion`
//! and `GetErrorString` return nothing useful, so this module judges a release by its symbols and its behaviour.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use super::acl;
use super::bindings::flagcx::{self, Comm, DataType, RedOp, StreamStructure, UniqueId};
use super::dialect::{
    Alive, Dialect, Request, Verb, call_library, code_of_dtype, code_of_op, failure, text,
};
use super::id::share_id;
use super::search::{Opened, functions};
use super::table::Table;
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

/// The types and operations of FlagCX over a vendor's library.
pub(super) struct Codes {
    /// Whether the vendor's library is HCCL. FlagCX's adaptor for it takes an average for a sum, and unsigned numbers of 32
    /// and 64 bits for `int8`; and it keeps transfers until a group ends.
    over_hccl: bool,
    reduces_wide: bool,
}

impl Codes {
    /// Those over the library of the configuration's vendor.
    pub fn of(config: &Config) -> Self {
        Self {
            over_hccl: config.vendor == acl::VENDOR,
            reduces_wide: acl::reduces_wide_numbers(config),
        }
    }
}

impl Table for Codes {
    fn dtype(&self, dtype: DType) -> Option<i32> {
        let code = code_of_dtype!(dtype, DataType);
        let is_other = matches!(dtype, DType::UInt32 | DType::UInt64) && self.over_hccl;
        code.filter(|_| !is_other)
    }

    fn reduced_dtype(&self, dtype: DType, op: ReduceOp) -> Option<i32> {
        match (dtype, op) {
            (DType::Bool, _) if self.over_hccl => self.dtype(DType::Int8),
            (DType::UInt8, _) | (DType::BFloat16, ReduceOp::Prod) if self.over_hccl => None,
            (DType::Float64, _) if !self.reduces_wide => None,
            _ => self.dtype(dtype),
        }
    }

    fn op(&self, op: ReduceOp) -> Option<i32> {
        code_of_op!(op, RedOp, Avg).filter(|_| op != ReduceOp::Avg || !self.over_hccl)
    }
}

/// A communicator of FlagCX.
pub struct FlagCx {
    functions: Functions,
    communicator: Comm,
    library: String,
    codes: Codes,
    /// In 0.13 `Destroy` after `Abort` or `Finalize` frees memory twice, so that exactly one of them is called.
    alive: Alive,
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
            codes: Codes::of(config),
            alive: Alive::default(),
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
        flagcx.alive.begin();
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
            // SAFETY: the communicator is alive; the string is the library's own.
            .and_then(|get| unsafe { text(get(self.communicator)) })
            .filter(|text| !text.is_empty() && text != "Not implemented.");
        let kind = if code == flagcx::Result::NotSupported {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Library
        };
        Err(failure(
            kind,
            &self.library,
            what,
            (meaning(code), code.0),
            last,
        ))
    }
}

impl FlagCx {
    /// Runs a transfer within a group of calls, over HCCL also where the caller has begun none.
    fn in_group(&self, transfer: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.codes.over_hccl || GROUPS.get() > 0 {
            return transfer();
        }
        self.group_start()?;
        let outcome = transfer();
        outcome.and(self.group_end())
    }
}

impl Dialect for FlagCx {
    fn engine(&self) -> &'static str {
        "flagcx"
    }

    fn library(&self) -> &str {
        &self.library
    }

    fn table(&self) -> &dyn Table {
        &self.codes
    }

    unsafe fn queue(&self, request: &Request, stream: *mut c_void) -> Result<()> {
        // FlagCX reads its structure around the vendor's stream before a call returns.
        let stream = StreamStructure { base: stream };
        let call = || {
            // SAFETY: the caller's promise about the buffers.
            let code = unsafe {
                call_library!(
                    request, self.functions, DataType, RedOp, self.communicator, &raw const stream,
                    broadcast(root) => (self.functions.broadcast)(
                        request.send.cast(),
                        request.recv.cast(),
                        request.count,
                        DataType(request.dtype as u32),
                        root as c_int,
                        self.communicator,
                        &raw const stream,
                    )
                )
            };
            self.check(request.verb.function(), code)
        };
        if matches!(request.verb, Verb::Send { .. } | Verb::Recv { .. }) {
            self.in_group(call)
        } else {
            call()
        }
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
        if !self.alive.end() {
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
            .filter(|_| self.alive.is_alive())
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
        if self.alive.end() {
            // SAFETY: ended once; all of its work has finished.
            unsafe { (self.functions.comm_destroy)(self.communicator) };
        }
    }
}
