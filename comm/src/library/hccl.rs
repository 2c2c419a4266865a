//! HCCL, which does not have the interface of NCCL.
//!
//! Interface: hccl.h of CANN 8, as `comm/bindings/hccl.h` states it. Broadcasts are in place, the transfers of a
//! group are sent as one batch, and the library has no average and no abort.

use std::cell::RefCell;
use std::ffi::c_void;

use super::acl;
use super::bindings::hccl::{
    self, Comm, DataType, Direction, ReduceOp as RedOp, RootInfo, SendRecvItem, Stream,
};
use super::dialect::{
    Alive, Dialect, Request, Verb, call_library, code_of_dtype, code_of_op, failure, text,
};
use super::id::share_id;
use super::search::{Opened, functions};
use super::table::Table;
use crate::Config;
use crate::{DType, Error, ErrorKind, ReduceOp, Result, Store};

const ROOT_INFO_BYTES: usize = size_of::<RootInfo>();

functions! {
    hccl:
    fn get_root_info = GetRootInfo;
    fn comm_init = CommInitRootInfo;
    fn comm_destroy = CommDestroy;
    fn all_reduce = AllReduce;
    fn reduce = Reduce;
    fn broadcast = Broadcast;
    fn all_gather = AllGather;
    fn reduce_scatter = ReduceScatter;
    fn send = Send;
    fn recv = Recv;
    fn batch_send_recv = BatchSendRecv;
    optional get_error_string = GetErrorString;
    optional get_comm_async_error = GetCommAsyncError;
}

thread_local! {
    /// The transfers of the group of calls that this thread has started.
    static BATCH: RefCell<Option<Batch>> = const { RefCell::new(None) };
}

/// A group of calls.
struct Batch {
    items: Vec<SendRecvItem>,
    stream: Stream,
    /// How many groups this one is within.
    outer: usize,
}

/// The types and operations of HCCL on a chip.
pub(super) struct Codes {
    pub reduces_wide: bool,
}

impl Codes {
    /// Those on the configuration's chip.
    pub fn of(config: &Config) -> Self {
        Self {
            reduces_wide: acl::reduces_wide_numbers(config),
        }
    }
}

impl Table for Codes {
    fn dtype(&self, dtype: DType) -> Option<i32> {
        code_of_dtype!(dtype, DataType, Int16, UInt16)
    }

    /// The types in the tables of the vendor's documentation.
    fn reduced_dtype(&self, dtype: DType, op: ReduceOp) -> Option<i32> {
        match (dtype, op) {
            // 0 and 1, whose greatest and least are the same.
            (DType::Bool, _) => self.dtype(DType::Int8),
            (DType::UInt8 | DType::UInt16 | DType::UInt32, _)
            | (DType::Int16 | DType::BFloat16, ReduceOp::Prod) => None,
            (DType::UInt64 | DType::Float64, _) if !self.reduces_wide => None,
            _ => self.dtype(dtype),
        }
    }

    fn op(&self, op: ReduceOp) -> Option<i32> {
        code_of_op!(op, RedOp)
    }
}

/// A communicator of HCCL.
pub struct Hccl {
    functions: Functions,
    communicator: Comm,
    rank: u32,
    library: String,
    codes: Codes,
    alive: Alive,
}

// SAFETY: the library may be called by any thread, one call at a time, as `LibraryCommunicator` does.
unsafe impl Send for Hccl {}
// SAFETY: as above.
unsafe impl Sync for Hccl {}

fn load(config: &Config) -> Result<(Functions, String)> {
    let library = Opened::open(config.library.as_deref(), &["libhccl.so"])?;
    Ok((Functions::load(&library, "Hccl")?, library.name))
}

/// Opens the library. Returns its name.
pub fn probe(config: &Config) -> Result<String> {
    load(config).map(|(_, library)| library)
}

impl Hccl {
    pub fn connect(config: &Config, store: &dyn Store) -> Result<Self> {
        let (functions, library) = load(config)?;
        let mut hccl = Self {
            functions,
            communicator: std::ptr::null_mut(),
            rank: config.rank as u32,
            library,
            codes: Codes::of(config),
            alive: Alive::default(),
        };
        let internal = share_id(config, store, "hccl", || {
            let mut info = RootInfo {
                internal: [0; ROOT_INFO_BYTES],
            };
            // SAFETY: writes the information.
            hccl.check("GetRootInfo", unsafe {
                (hccl.functions.get_root_info)(&raw mut info)
            })?;
            Ok(info.internal)
        })?;
        let info = RootInfo { internal };
        // SAFETY: the information is rank 0's; the caller has made the device current.
        let outcome = unsafe {
            (hccl.functions.comm_init)(
                config.size as u32,
                &raw const info,
                hccl.rank,
                &raw mut hccl.communicator,
            )
        };
        hccl.check("CommInitRootInfo", outcome)?;
        hccl.alive.begin();
        Ok(hccl)
    }

    fn check(&self, what: &str, code: hccl::Result) -> Result<()> {
        if code == hccl::Result::Success {
            return Ok(());
        }
        // SAFETY: any code may be asked; the string is static.
        let meaning = (self.functions.get_error_string).and_then(|get| unsafe { text(get(code)) });
        let kind = if code == hccl::Result::NotSupport {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Library
        };
        let meaning = meaning.unwrap_or_default();
        Err(failure(
            kind,
            &self.library,
            what,
            (&meaning, code.0),
            acl::recent_error(),
        ))
    }

    /// Adds a transfer to this thread's group of calls; false for other calls, and without a group.
    fn batched(request: &Request, stream: Stream) -> bool {
        let (direction, buffer, peer) = match request.verb {
            Verb::Send { peer } => (Direction::SendItem, request.send.cast_mut(), peer),
            Verb::Recv { peer } => (Direction::RecvItem, request.recv, peer),
            _ => return false,
        };
        let item = SendRecvItem {
            direction,
            buffer: buffer.cast(),
            count: request.count as u64,
            type_: DataType(request.dtype as u32),
            peer: peer as u32,
        };
        BATCH.with_borrow_mut(|batch| match batch {
            Some(batch) => {
                batch.items.push(item);
                batch.stream = stream;
                true
            }
            None => false,
        })
    }

    /// The buffer of a broadcast, which is in place: the root's is only read.
    fn broadcast_buffer(&self, request: &Request, root: usize) -> Result<*mut c_void> {
        if self.rank as usize != root {
            return Ok(request.recv.cast());
        }
        if !std::ptr::eq(request.send, request.recv) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} broadcasts in place only", self.library),
            ));
        }
        Ok(request.send.cast_mut().cast())
    }
}

impl Dialect for Hccl {
    fn engine(&self) -> &'static str {
        "hccl"
    }

    fn library(&self) -> &str {
        &self.library
    }

    fn table(&self) -> &dyn Table {
        &self.codes
    }

    unsafe fn queue(&self, request: &Request, stream: *mut c_void) -> Result<()> {
        if Self::batched(request, stream) {
            return Ok(());
        }
        // SAFETY: the caller's promise about the buffers.
        let code = unsafe {
            call_library!(
                request, self.functions, DataType, RedOp, self.communicator, stream,
                broadcast(root) => (self.functions.broadcast)(
                    self.broadcast_buffer(request, root)?,
                    request.count as u64,
                    DataType(request.dtype as u32),
                    root as u32,
                    self.communicator,
                    stream,
                )
            )
        };
        self.check(request.verb.function(), code)
    }

    fn group_start(&self) -> Result<()> {
        BATCH.with_borrow_mut(|batch| match batch {
            Some(batch) => batch.outer += 1,
            None => {
                *batch = Some(Batch {
                    items: vec![],
                    stream: std::ptr::null_mut(),
                    outer: 0,
                });
            }
        });
        Ok(())
    }

    fn group_end(&self) -> Result<()> {
        let ended = BATCH.with_borrow_mut(|batch| match batch {
            Some(inner) if inner.outer > 0 => {
                inner.outer -= 1;
                None
            }
            _ => Some(batch.take()),
        });
        let Some(ended) = ended else {
            return Ok(());
        };
        let Some(Batch {
            mut items, stream, ..
        }) = ended
        else {
            return Err(Error::new(
                ErrorKind::Internal,
                "a group of HCCL ended that was not begun",
            ));
        };
        if items.is_empty() {
            return Ok(());
        }
        // SAFETY: the items' buffers are valid, by the promise of the callers that added them.
        self.check("BatchSendRecv", unsafe {
            (self.functions.batch_send_recv)(
                items.as_mut_ptr(),
                items.len() as u32,
                self.communicator,
                stream,
            )
        })
    }

    fn abort(&self) -> Result<()> {
        // Destroying a communicator that hangs would hang too, so it lives until the end of the process.
        self.alive.end();
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} cannot abort: end the process", self.library),
        ))
    }

    fn async_error(&self) -> Result<()> {
        let Some(get) = self
            .functions
            .get_comm_async_error
            .filter(|_| self.alive.is_alive())
        else {
            return Ok(());
        };
        let mut error = hccl::Result::Success;
        // SAFETY: the communicator is alive; writes one integer.
        self.check("GetCommAsyncError", unsafe {
            get(self.communicator, &raw mut error)
        })?;
        self.check("an earlier call", error)
    }
}

impl Drop for Hccl {
    fn drop(&mut self) {
        if self.alive.end() {
            // SAFETY: ended once; all of its work has finished.
            unsafe { (self.functions.comm_destroy)(self.communicator) };
        }
    }
}
