//! The common interface of the vendors' libraries, and what their interfaces have in common.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::table::Table;
use crate::{DType, Error, ErrorKind, Result};

/// A request to a library. Operations are codes of the library.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    AllReduce { op: i32 },
    Reduce { op: i32, root: usize },
    Broadcast { root: usize },
    AllGather,
    ReduceScatter { op: i32 },
    Send { peer: usize },
    Recv { peer: usize },
}

impl Verb {
    /// The name of the libraries' function, without their prefix.
    pub fn function(self) -> &'static str {
        match self {
            Self::AllReduce { .. } => "AllReduce",
            Self::Reduce { .. } => "Reduce",
            Self::Broadcast { .. } => "Broadcast",
            Self::AllGather => "AllGather",
            Self::ReduceScatter { .. } => "ReduceScatter",
            Self::Send { .. } => "Send",
            Self::Recv { .. } => "Recv",
        }
    }
}

/// One call of a library.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub verb: Verb,
    /// NULL for [`Verb::Recv`].
    pub send: *const u8,
    /// NULL for [`Verb::Send`].
    pub recv: *mut u8,
    /// Elements of the type `dtype`.
    pub count: usize,
    /// A code of the library.
    pub dtype: i32,
}

/// A communicator of a vendor's library, in terms that all libraries share.
pub(super) trait Dialect: Send + Sync {
    fn engine(&self) -> &'static str;
    fn library(&self) -> &str;

    /// The library's types and operations.
    fn table(&self) -> &dyn Table;

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

    /// Queues a call on a stream.
    ///
    /// # Safety
    /// The request's buffers are valid until the stream has run the call.
    unsafe fn queue(&self, request: &Request, stream: *mut c_void) -> Result<()>;
    fn group_start(&self) -> Result<()>;
    fn group_end(&self) -> Result<()>;

    /// Ends the communicator's work. Called at most once, and as the last call.
    fn abort(&self) -> Result<()>;
    fn async_error(&self) -> Result<()>;
}

/// Calls the library's function for a [`Request`] and returns its result. The libraries have the same functions with the
/// same arguments, but for broadcasts.
macro_rules! call_library {
    (
        $request:expr, $functions:expr, $data_type:ident, $op:ident, $communicator:expr, $stream:expr,
        broadcast($root:ident) => $broadcast:expr
    ) => {{
        let $crate::library::dialect::Request {
            verb,
            send,
            recv,
            count,
            dtype,
        } = *$request;
        let (send, recv, count) = (send.cast_mut().cast(), recv.cast(), count as _);
        let dtype = $data_type(dtype as u32);
        let (functions, communicator, stream) = (&$functions, $communicator, $stream);
        match verb {
            Verb::AllReduce { op } => {
                let op = $op(op as u32);
                (functions.all_reduce)(send, recv, count, dtype, op, communicator, stream)
            }
            Verb::Reduce { op, root } => {
                let (op, root) = ($op(op as u32), root as _);
                (functions.reduce)(send, recv, count, dtype, op, root, communicator, stream)
            }
            Verb::Broadcast { root: $root } => $broadcast,
            Verb::AllGather => {
                (functions.all_gather)(send, recv, count, dtype, communicator, stream)
            }
            Verb::ReduceScatter { op } => {
                let op = $op(op as u32);
                (functions.reduce_scatter)(send, recv, count, dtype, op, communicator, stream)
            }
            Verb::Send { peer } => {
                (functions.send)(send, count, dtype, peer as _, communicator, stream)
            }
            Verb::Recv { peer } => {
                (functions.recv)(recv, count, dtype, peer as _, communicator, stream)
            }
        }
    }};
}
pub(super) use call_library;

/// The library's code of a type: of one that all libraries have, or of one of `$more`.
macro_rules! code_of_dtype {
    ($dtype:expr, $codes:ident $(, $more:ident)*) => {
        match $dtype {
            DType::Int8 => Some($codes::Int8),
            DType::UInt8 | DType::Bool | DType::Bytes => Some($codes::UInt8),
            DType::Int32 => Some($codes::Int32),
            DType::UInt32 => Some($codes::UInt32),
            DType::Int64 => Some($codes::Int64),
            DType::UInt64 => Some($codes::UInt64),
            DType::Float16 => Some($codes::Float16),
            DType::Float32 => Some($codes::Float32),
            DType::Float64 => Some($codes::Float64),
            DType::BFloat16 => Some($codes::BFloat16),
            $(DType::$more => Some($codes::$more),)*
            _ => None,
        }
        .map(|code| code.0 as i32)
    };
}
pub(super) use code_of_dtype;

/// The library's code of an operation: of one that all libraries have, or of one of `$more`.
macro_rules! code_of_op {
    ($op:expr, $codes:ident $(, $more:ident)*) => {
        match $op {
            ReduceOp::Sum => Some($codes::Sum),
            ReduceOp::Prod => Some($codes::Prod),
            ReduceOp::Max => Some($codes::Max),
            ReduceOp::Min => Some($codes::Min),
            $(ReduceOp::$more => Some($codes::$more),)*
            _ => None,
        }
        .map(|code| code.0 as i32)
    };
}
pub(super) use code_of_op;

/// Whether a communicator of a library is there to be used, or to be ended once.
#[derive(Debug, Default)]
pub(super) struct Alive(AtomicBool);

impl Alive {
    /// The communicator was made.
    pub fn begin(&mut self) {
        *self.0.get_mut() = true;
    }

    pub fn is_alive(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether the caller is the one to end the communicator.
    pub fn end(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// A string of a library.
///
/// # Safety
/// `pointer` is NULL or a string that is valid during this call.
pub(super) unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}

/// The failure of a library's function: the meaning of its result, and what the library says besides.
pub(super) fn failure(
    kind: ErrorKind,
    library: &str,
    function: &str,
    (meaning, code): (&str, u32),
    said: Option<String>,
) -> Error {
    let said = said.map_or(String::new(), |text| format!(": {text}"));
    Error::new(
        kind,
        format!("{function} failed in {library}: {meaning} (code {code}){said}"),
    )
}
