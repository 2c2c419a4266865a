//! HCCL, which does not have the interface of NCCL.
//!
//! Interface: hccl.h of CANN 8, as `comm/bindings/hccl.h` states it. Broadcasts are in place, the transfers of a
//! group are sent as one batch, and the library has no average and no abort.

use std::cell::RefCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::acl;
use super::bindings::hccl::{self, Comm, DataType, Direction, RootInfo, SendRecvItem, Stream};
use super::dialect::Dialect;
use super::id::share_id;
use super::search::{functions, Opened};
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

/// A communicator of HCCL.
pub struct Hccl {
    functions: Functions,
    communicator: Comm,
    rank: u32,
    library: String,
    ended: AtomicBool,
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
            ended: AtomicBool::new(true),
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
        hccl.ended = AtomicBool::new(false);
        Ok(hccl)
    }

    fn check(&self, what: &str, code: hccl::Result) -> Result<()> {
        if code == hccl::Result::Success {
            return Ok(());
        }
        let meaning = self.functions.get_error_string.and_then(|get| {
            // SAFETY: any code may be asked; the string is static.
            let text = unsafe { get(code) };
            if text.is_null() {
                return None;
            }
            // SAFETY: as above.
            let text = unsafe { CStr::from_ptr(text) };
            Some(text.to_string_lossy().into_owned())
        });
        let kind = if code == hccl::Result::NotSupport {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Library
        };
        Err(Error::new(
            kind,
            format!(
                "{what} failed in {}: {} (code {}){}",
                self.library,
                meaning.unwrap_or_default(),
                code.0,
                acl::recent_error().map_or(String::new(), |text| format!(": {text}"))
            ),
        ))
    }

    /// Adds a transfer to this thread's group of calls; false without a group.
    fn batched(item: SendRecvItem, stream: Stream) -> bool {
        BATCH.with_borrow_mut(|batch| match batch {
            Some(batch) => {
                batch.items.push(item);
                batch.stream = stream;
                true
            }
            None => false,
        })
    }
}

impl Dialect for Hccl {
    fn engine(&self) -> &'static str {
        "hccl"
    }

    fn library(&self) -> String {
        self.library.clone()
    }

    fn dtype(&self, dtype: DType) -> Option<i32> {
        let code = match dtype {
            DType::Int8 => DataType::Int8,
            DType::Int16 => DataType::Int16,
            DType::Int32 => DataType::Int32,
            DType::Float16 => DataType::Float16,
            DType::Float32 => DataType::Float32,
            DType::Int64 => DataType::Int64,
            DType::UInt64 => DataType::UInt64,
            DType::UInt8 | DType::Bool | DType::Bytes => DataType::UInt8,
            DType::UInt16 => DataType::UInt16,
            DType::UInt32 => DataType::UInt32,
            DType::Float64 => DataType::Float64,
            DType::BFloat16 => DataType::BFloat16,
            _ => return None,
        };
        Some(code.0 as i32)
    }

    /// What the tables of the vendor's documentation have. 64-bit numbers but `int64` are for newer chips alone, and the
    /// library knows its chip.
    fn reduced_dtype(&self, dtype: DType, op: ReduceOp) -> Option<i32> {
        match (dtype, op) {
            // 0 and 1, whose greatest and least are the same.
            (DType::Bool, _) => self.dtype(DType::Int8),
            (DType::UInt8 | DType::UInt16 | DType::UInt32, _)
            | (DType::Int16 | DType::BFloat16, ReduceOp::Prod) => None,
            _ => self.dtype(dtype),
        }
    }

    fn op(&self, op: ReduceOp) -> Option<i32> {
        let code = match op {
            ReduceOp::Sum => hccl::ReduceOp::Sum,
            ReduceOp::Prod => hccl::ReduceOp::Prod,
            ReduceOp::Max => hccl::ReduceOp::Max,
            ReduceOp::Min => hccl::ReduceOp::Min,
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
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise about the buffers, here and below.
        self.check("AllReduce", unsafe {
            (self.functions.all_reduce)(
                send.cast_mut().cast(),
                recv.cast(),
                count as u64,
                DataType(dtype as u32),
                hccl::ReduceOp(op as u32),
                self.communicator,
                stream,
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
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: see all_reduce.
        self.check("Reduce", unsafe {
            (self.functions.reduce)(
                send.cast_mut().cast(),
                recv.cast(),
                count as u64,
                DataType(dtype as u32),
                hccl::ReduceOp(op as u32),
                root as u32,
                self.communicator,
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
        let buffer = if self.rank as usize == root {
            send.cast_mut()
        } else {
            recv
        };
        if self.rank as usize == root && !std::ptr::eq(send, recv) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} broadcasts in place only", self.library),
            ));
        }
        // SAFETY: see all_reduce; the root's buffer is only read.
        self.check("Broadcast", unsafe {
            (self.functions.broadcast)(
                buffer.cast(),
                count as u64,
                DataType(dtype as u32),
                root as u32,
                self.communicator,
                stream,
            )
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
            (self.functions.all_gather)(
                send.cast_mut().cast(),
                recv.cast(),
                count as u64,
                DataType(dtype as u32),
                self.communicator,
                stream,
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
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: see all_reduce.
        self.check("ReduceScatter", unsafe {
            (self.functions.reduce_scatter)(
                send.cast_mut().cast(),
                recv.cast(),
                count as u64,
                DataType(dtype as u32),
                hccl::ReduceOp(op as u32),
                self.communicator,
                stream,
            )
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
        let item = SendRecvItem {
            direction: Direction::SendItem,
            buffer: send.cast_mut().cast(),
            count: count as u64,
            type_: DataType(dtype as u32),
            peer: peer as u32,
        };
        if Self::batched(item, stream) {
            return Ok(());
        }
        // SAFETY: see all_reduce.
        self.check("Send", unsafe {
            (self.functions.send)(
                send.cast_mut().cast(),
                count as u64,
                DataType(dtype as u32),
                peer as u32,
                self.communicator,
                stream,
            )
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
        let item = SendRecvItem {
            direction: Direction::RecvItem,
            buffer: recv.cast(),
            count: count as u64,
            type_: DataType(dtype as u32),
            peer: peer as u32,
        };
        if Self::batched(item, stream) {
            return Ok(());
        }
        // SAFETY: see all_reduce.
        self.check("Recv", unsafe {
            (self.functions.recv)(
                recv.cast(),
                count as u64,
                DataType(dtype as u32),
                peer as u32,
                self.communicator,
                stream,
            )
        })
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
        self.ended.store(true, Ordering::Release);
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} cannot abort: end the process", self.library),
        ))
    }

    fn async_error(&self) -> Result<()> {
        let Some(get) = self
            .functions
            .get_comm_async_error
            .filter(|_| !self.ended.load(Ordering::Acquire))
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
        if !self.ended.swap(true, Ordering::AcqRel) {
            // SAFETY: ended once; all of its work has finished.
            unsafe { (self.functions.comm_destroy)(self.communicator) };
        }
    }
}
