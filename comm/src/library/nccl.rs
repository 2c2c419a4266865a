//! NCCL, and the libraries with its interface: RCCL and others under the same names, MetaX's and Moore
//! Threads' with the prefix `mccl`.
//!
//! Interface: nccl.h of NCCL 2.11 and later. Result codes are plain integers here, because newer
//! libraries answer codes that are not known yet.

use std::ffi::{c_char, c_int, c_void, CStr};

use super::search::{functions, Opened};
use super::Dialect;
use crate::engine::Config;
use crate::store::share;
use crate::{DType, Error, ErrorKind, ReduceOp, Result, Store};

/// `ncclUniqueId`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

type Comm = *mut c_void;
type Stream = *mut c_void;

const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;

/// `ncclScalarHostImmediate`: the factor is read before the call returns.
const HOST_IMMEDIATE: c_int = 1;

functions! {
    fn get_unique_id = "GetUniqueId"(*mut UniqueId) -> c_int;
    fn comm_init_rank = "CommInitRank"(*mut Comm, c_int, UniqueId, c_int) -> c_int;
    fn comm_destroy = "CommDestroy"(Comm) -> c_int;
    fn comm_abort = "CommAbort"(Comm) -> c_int;
    fn comm_get_async_error = "CommGetAsyncError"(Comm, *mut c_int) -> c_int;
    fn all_reduce = "AllReduce"(*const u8, *mut u8, usize, c_int, c_int, Comm, Stream) -> c_int;
    fn reduce = "Reduce"(*const u8, *mut u8, usize, c_int, c_int, c_int, Comm, Stream) -> c_int;
    fn broadcast = "Broadcast"(*const u8, *mut u8, usize, c_int, c_int, Comm, Stream) -> c_int;
    fn all_gather = "AllGather"(*const u8, *mut u8, usize, c_int, Comm, Stream) -> c_int;
    fn reduce_scatter = "ReduceScatter"(*const u8, *mut u8, usize, c_int, c_int, Comm, Stream) -> c_int;
    fn send = "Send"(*const u8, usize, c_int, c_int, Comm, Stream) -> c_int;
    fn recv = "Recv"(*mut u8, usize, c_int, c_int, Comm, Stream) -> c_int;
    fn group_start = "GroupStart"() -> c_int;
    fn group_end = "GroupEnd"() -> c_int;
    optional get_version = "GetVersion"(*mut c_int) -> c_int;
    optional get_error_string = "GetErrorString"(c_int) -> *const c_char;
    optional get_last_error = "GetLastError"(Comm) -> *const c_char;
    optional create_premul_sum = "RedOpCreatePreMulSum"(*mut c_int, *const c_void, c_int, c_int, Comm) -> c_int;
    optional destroy_op = "RedOpDestroy"(c_int, Comm) -> c_int;
}

/// A communicator of the library.
pub struct Nccl {
    functions: Functions,
    comm: Comm,
    library: String,
    ended: std::sync::atomic::AtomicBool,
}

// SAFETY: NCCL's communicators may be used by any thread, one call at a time, which `Group` sees to.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

/// Prefix and names of the libraries for a vendor.
fn names(vendor: &str) -> (&'static str, &'static [&'static str]) {
    match vendor {
        "metax" | "musa" => ("mccl", &["libmccl.so.2", "libmccl.so"]),
        _ => (
            "nccl",
            &["libnccl.so.2", "libnccl.so", "librccl.so.1", "librccl.so"],
        ),
    }
}

fn load(config: &Config) -> Result<(Functions, String)> {
    let (mut prefix, sonames) = names(&config.vendor);
    let library = Opened::open(config.library.as_deref(), sonames)?;
    // A file that was named says itself which names it has.
    if config.library.is_some() {
        type Any = unsafe extern "C" fn();
        // SAFETY: only asked whether it is there.
        if unsafe { library.optional::<Any>("mcclGetUniqueId") }.is_some() {
            prefix = "mccl";
        }
    }
    let functions = Functions::load(&library, prefix)?;
    let mut version = 0;
    let known = functions.get_version.is_some_and(|get| {
        // SAFETY: writes one integer.
        unsafe { get(&raw mut version) == SUCCESS }
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

/// The library's name and version, or why it cannot be used.
pub fn probe(config: &Config) -> Result<String> {
    load(config).map(|(_, library)| library)
}

impl Nccl {
    pub fn connect(config: &Config, store: &dyn Store) -> Result<Self> {
        let (functions, library) = load(config)?;
        let mut nccl = Self {
            functions,
            comm: std::ptr::null_mut(),
            library,
            ended: std::sync::atomic::AtomicBool::new(true),
        };
        let bytes = share(
            store,
            config.rank,
            config.size,
            config.timeout,
            "nccl",
            |_| {
                let mut id = UniqueId([0; 128]);
                // SAFETY: writes the id.
                nccl.check("GetUniqueId", unsafe {
                    (nccl.functions.get_unique_id)(&raw mut id)
                })?;
                Ok(id.0.to_vec())
            },
        )?;
        let told = bytes.len();
        let id: [u8; 128] = bytes.try_into().map_err(|_| {
            Error::new(
                ErrorKind::Mismatch,
                format!("rank 0 told an id of {told} bytes, NCCL's have 128"),
            )
        })?;
        let id = UniqueId(id);
        // SAFETY: the id is rank 0's; the device is current, as the caller sees to.
        let outcome = unsafe {
            (nccl.functions.comm_init_rank)(
                &raw mut nccl.comm,
                config.size as c_int,
                id,
                config.rank as c_int,
            )
        };
        nccl.check("CommInitRank", outcome)?;
        nccl.ended = std::sync::atomic::AtomicBool::new(false);
        Ok(nccl)
    }

    fn check(&self, what: &str, code: c_int) -> Result<()> {
        if code == SUCCESS || code == IN_PROGRESS {
            return Ok(());
        }
        // The library's strings are static, or its thread's own.
        let text = |pointer: *const c_char| {
            if pointer.is_null() {
                return None;
            }
            // SAFETY: see above.
            let text = unsafe { CStr::from_ptr(pointer) };
            Some(text.to_string_lossy().into_owned())
        };
        let meaning = self.functions.get_error_string.and_then(|get| {
            // SAFETY: any code may be asked.
            text(unsafe { get(code) })
        });
        let last = self.functions.get_last_error.and_then(|get| {
            // SAFETY: the communicator may be NULL.
            text(unsafe { get(self.comm) })
        });
        Err(Error::new(
            ErrorKind::Library,
            format!(
                "{} failed in {}: {} (code {code}){}",
                what,
                self.library,
                meaning.unwrap_or_default(),
                last.filter(|text| !text.is_empty())
                    .map_or(String::new(), |text| format!(": {text}"))
            ),
        ))
    }
}

impl Dialect for Nccl {
    fn engine(&self) -> &'static str {
        "nccl"
    }

    fn library(&self) -> String {
        self.library.clone()
    }

    fn dtype(&self, dtype: DType) -> Option<i32> {
        Some(match dtype {
            DType::Int8 => 0,
            DType::UInt8 | DType::Bool | DType::Bytes => 1,
            DType::Int32 => 2,
            DType::UInt32 => 3,
            DType::Int64 => 4,
            DType::UInt64 => 5,
            DType::Float16 => 6,
            DType::Float32 => 7,
            DType::Float64 => 8,
            DType::BFloat16 => 9,
            _ => return None,
        })
    }

    fn op(&self, op: ReduceOp) -> Option<i32> {
        Some(match op {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Max => 2,
            ReduceOp::Min => 3,
            ReduceOp::Avg => 4,
            _ => return None,
        })
    }

    fn premul(&self, factor: f64, dtype: DType) -> Result<i32> {
        let (Some(create), Some(code)) = (self.functions.create_premul_sum, self.dtype(dtype))
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
        let mut op = 0;
        // SAFETY: the scalar is of the type and read before the call returns.
        let outcome = unsafe {
            create(
                &raw mut op,
                scalar.as_ptr().cast(),
                code,
                HOST_IMMEDIATE,
                self.comm,
            )
        };
        self.check("RedOpCreatePreMulSum", outcome).map(|()| op)
    }

    fn drop_premul(&self, op: i32) {
        if let Some(destroy) = self.functions.destroy_op {
            // SAFETY: made by `premul`, destroyed once; queued work keeps what it needs.
            unsafe { destroy(op, self.comm) };
        }
    }

    unsafe fn all_reduce(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        op: i32,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise about the buffers, here and below.
        self.check("AllReduce", unsafe {
            (self.functions.all_reduce)(send, recv, count, dtype, op, self.comm, stream)
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
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: see all_reduce.
        self.check("Reduce", unsafe {
            (self.functions.reduce)(
                send,
                recv,
                count,
                dtype,
                op,
                root as c_int,
                self.comm,
                stream,
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
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: see all_reduce.
        self.check("Broadcast", unsafe {
            (self.functions.broadcast)(send, recv, count, dtype, root as c_int, self.comm, stream)
        })
    }

    unsafe fn all_gather(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: see all_reduce.
        self.check("AllGather", unsafe {
            (self.functions.all_gather)(send, recv, count, dtype, self.comm, stream)
        })
    }

    unsafe fn reduce_scatter(
        &self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        op: i32,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: see all_reduce.
        self.check("ReduceScatter", unsafe {
            (self.functions.reduce_scatter)(send, recv, count, dtype, op, self.comm, stream)
        })
    }

    unsafe fn send(
        &self,
        send: *const u8,
        count: usize,
        dtype: i32,
        peer: usize,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: see all_reduce.
        self.check("Send", unsafe {
            (self.functions.send)(send, count, dtype, peer as c_int, self.comm, stream)
        })
    }

    unsafe fn recv(
        &self,
        recv: *mut u8,
        count: usize,
        dtype: i32,
        peer: usize,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: see all_reduce.
        self.check("Recv", unsafe {
            (self.functions.recv)(recv, count, dtype, peer as c_int, self.comm, stream)
        })
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
        if self.ended.swap(true, std::sync::atomic::Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: ended once, and not used afterwards.
        self.check("CommAbort", unsafe {
            (self.functions.comm_abort)(self.comm)
        })
    }

    fn async_error(&self) -> Result<()> {
        if self.ended.load(std::sync::atomic::Ordering::Acquire) {
            return Ok(());
        }
        let mut error = 0;
        // SAFETY: writes one integer.
        let asked = unsafe { (self.functions.comm_get_async_error)(self.comm, &raw mut error) };
        self.check("CommGetAsyncError", asked)?;
        self.check("an earlier call", error)
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if !self.ended.swap(true, std::sync::atomic::Ordering::AcqRel) {
            // SAFETY: ended once; all its work has been waited for.
            unsafe { (self.functions.comm_destroy)(self.comm) };
        }
    }
}
