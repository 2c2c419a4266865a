//! NCCL, and the libraries with its interface: RCCL and others with the same names of functions, and those of the
//! engine `mccl`, whose prefix is `mccl`.
//!
//! Interface: nccl.h of NCCL 2.11 and later, as `comm/bindings/nccl.h` states it.

use std::ffi::{c_int, c_void};

use super::bindings::nccl::{self, Comm, DataType, RedOp, ScalarResidence, UniqueId};
use super::dialect::{
    Alive, Dialect, Request, Verb, call_library, code_of_dtype, code_of_op, failure, text,
};
use super::id::share_id;
use super::search::{Opened, functions};
use super::table::Table;
use crate::Config;
use crate::{DType, Error, ErrorKind, ReduceOp, Result, Store};

functions! {
    nccl:
    fn get_unique_id = GetUniqueId;
    fn comm_init_rank = CommInitRank;
    fn comm_destroy = CommDestroy;
    fn comm_abort = CommAbort;
    fn comm_get_async_error = CommGetAsyncError;
    fn all_reduce = AllReduce;
    fn reduce = Reduce;
    fn broadcast = Broadcast;
    fn all_gather = AllGather;
    fn reduce_scatter = ReduceScatter;
    fn send = Send;
    fn recv = Recv;
    fn group_start = GroupStart;
    fn group_end = GroupEnd;
    optional get_version = GetVersion;
    optional get_error_string = GetErrorString;
    optional get_last_error = GetLastError;
    optional create_premul_sum = RedOpCreatePreMulSum;
    optional destroy_op = RedOpDestroy;
}

/// The types and operations of the library.
pub(super) struct Codes;

impl Table for Codes {
    fn dtype(&self, dtype: DType) -> Option<i32> {
        code_of_dtype!(dtype, DataType)
    }

    fn op(&self, op: ReduceOp) -> Option<i32> {
        code_of_op!(op, RedOp, Avg)
    }
}

/// A communicator of the library.
pub struct Nccl {
    engine: &'static str,
    functions: Functions,
    communicator: Comm,
    library: String,
    alive: Alive,
}

// SAFETY: the library may be called by any thread, one call at a time, as `LibraryCommunicator` does.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

/// An engine whose library has NCCL's interface.
#[derive(Debug)]
pub struct Names {
    /// The engine's name, which is the functions' prefix.
    engine: &'static str,
    sonames: &'static [&'static str],
}

/// The engine `nccl`.
pub const NCCL: Names = Names {
    engine: "nccl",
    sonames: &["libnccl.so.2", "libnccl.so", "librccl.so.1", "librccl.so"],
};

/// The engine `mccl`.
pub const MCCL: Names = Names {
    engine: "mccl",
    sonames: &["libmccl.so.2", "libmccl.so"],
};

fn load(names: &Names, config: &Config) -> Result<(Functions, String)> {
    let mut prefix = names.engine;
    let library = Opened::open(config.library.as_deref(), names.sonames)?;
    // The prefix of a configured file follows from its symbols.
    if config.library.is_some() {
        type Any = unsafe extern "C" fn();
        // SAFETY: the function is not called.
        let has =
            |prefix: &str| unsafe { library.optional::<Any>(&format!("{prefix}GetUniqueId")) };
        let prefixes = [prefix, NCCL.engine, MCCL.engine];
        prefix = prefixes
            .into_iter()
            .find(|prefix| has(prefix).is_some())
            .unwrap_or(prefix);
    }
    let functions = Functions::load(&library, prefix)?;
    let mut version = 0;
    let known = functions.get_version.is_some_and(|get| {
        // SAFETY: writes one integer.
        unsafe { get(&raw mut version) == nccl::Result::Success }
    });
    let version = if known {
        format!(
            " {}.{}.{}",
            version / 10000,
            version / 100 % 100,
            version % 100
        )
    } else {
        String::new()
    };
    Ok((functions, format!("{}{version}", library.name)))
}

/// Opens the library. Returns its name and version.
pub fn probe(names: &Names, config: &Config) -> Result<String> {
    load(names, config).map(|(_, library)| library)
}

impl Nccl {
    pub fn connect(names: &Names, config: &Config, store: &dyn Store) -> Result<Self> {
        let (functions, library) = load(names, config)?;
        let mut nccl = Self {
            engine: names.engine,
            functions,
            communicator: std::ptr::null_mut(),
            library,
            alive: Alive::default(),
        };
        let internal = share_id(config, store, "nccl", || {
            let mut id = UniqueId { internal: [0; 128] };
            // SAFETY: writes the id.
            nccl.check("GetUniqueId", unsafe {
                (nccl.functions.get_unique_id)(&raw mut id)
            })?;
            Ok(id.internal)
        })?;
        let id = UniqueId { internal };
        // SAFETY: the id is rank 0's; the caller has made the device current.
        let outcome = unsafe {
            (nccl.functions.comm_init_rank)(
                &raw mut nccl.communicator,
                config.size as c_int,
                id,
                config.rank as c_int,
            )
        };
        nccl.check("CommInitRank", outcome)?;
        nccl.alive.begin();
        Ok(nccl)
    }

    fn check(&self, what: &str, code: nccl::Result) -> Result<()> {
        if code == nccl::Result::Success || code == nccl::Result::InProgress {
            return Ok(());
        }
        // SAFETY: any code may be asked; the library's strings are static, or belong to the thread.
        let meaning = (self.functions.get_error_string).and_then(|get| unsafe { text(get(code)) });
        // SAFETY: the communicator may be NULL; the string as above.
        let last = (self.functions.get_last_error)
            .and_then(|get| unsafe { text(get(self.communicator)) })
            .filter(|text| !text.is_empty());
        let meaning = meaning.unwrap_or_default();
        Err(failure(
            ErrorKind::Library,
            &self.library,
            what,
            (&meaning, code.0),
            last,
        ))
    }
}

impl Dialect for Nccl {
    fn engine(&self) -> &'static str {
        self.engine
    }

    fn library(&self) -> &str {
        &self.library
    }

    fn table(&self) -> &dyn Table {
        &Codes
    }

    fn has_premul(&self) -> bool {
        self.functions.create_premul_sum.is_some()
    }

    fn premul(&self, factor: f64, dtype: DType) -> Result<i32> {
        let (Some(create), Some(code)) = (self.functions.create_premul_sum, Codes.dtype(dtype))
        else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} has no premul_sum of {}", self.library, dtype.name()),
            ));
        };
        let mut scalar = [0u8; 8];
        match dtype {
            DType::Float16 => {
                scalar[..2].copy_from_slice(&half::f16::from_f64(factor).to_ne_bytes())
            }
            DType::BFloat16 => {
                scalar[..2].copy_from_slice(&half::bf16::from_f64(factor).to_ne_bytes())
            }
            DType::Float32 => scalar[..4].copy_from_slice(&(factor as f32).to_ne_bytes()),
            _ => scalar = factor.to_ne_bytes(),
        }
        let mut op = RedOp::Sum;
        // SAFETY: the scalar is of the type and read before the call returns.
        let outcome = unsafe {
            create(
                &raw mut op,
                scalar.as_mut_ptr().cast(),
                DataType(code as u32),
                ScalarResidence::ScalarHostImmediate,
                self.communicator,
            )
        };
        self.check("RedOpCreatePreMulSum", outcome)
            .map(|()| op.0 as i32)
    }

    fn drop_premul(&self, op: i32) {
        if let Some(destroy) = self.functions.destroy_op {
            // SAFETY: made by `premul`, destroyed once; queued work keeps what it needs.
            unsafe { destroy(RedOp(op as u32), self.communicator) };
        }
    }

    unsafe fn queue(&self, request: &Request, stream: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise about the buffers.
        let code = unsafe {
            call_library!(
                request, self.functions, DataType, RedOp, self.communicator, stream,
                broadcast(root) => (self.functions.broadcast)(
                    request.send.cast(),
                    request.recv.cast(),
                    request.count,
                    DataType(request.dtype as u32),
                    root as c_int,
                    self.communicator,
                    stream,
                )
            )
        };
        self.check(request.verb.function(), code)
    }

    fn group_start(&self) -> Result<()> {
        // SAFETY: of this thread, ended by it.
        self.check("GroupStart", unsafe { (self.functions.group_start)() })
    }

    fn group_end(&self) -> Result<()> {
        // SAFETY: of this thread, started by it.
        self.check("GroupEnd", unsafe { (self.functions.group_end)() })
    }

    fn abort(&self) -> Result<()> {
        if !self.alive.end() {
            return Ok(());
        }
        // SAFETY: ended once, and not used afterwards.
        self.check("CommAbort", unsafe {
            (self.functions.comm_abort)(self.communicator)
        })
    }

    fn async_error(&self) -> Result<()> {
        if !self.alive.is_alive() {
            return Ok(());
        }
        let mut error = nccl::Result::Success;
        // SAFETY: writes one integer.
        let asked =
            unsafe { (self.functions.comm_get_async_error)(self.communicator, &raw mut error) };
        self.check("CommGetAsyncError", asked)?;
        self.check("an earlier call", error)
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if self.alive.end() {
            // SAFETY: ended once; all of its work has finished.
            unsafe { (self.functions.comm_destroy)(self.communicator) };
        }
    }
}
