//! The trait that every engine implements: one rank's end of a group.

use std::ffi::c_void;

use crate::collective::size_of_bytes;
use crate::{Collective, DType, Error, ErrorKind, Kind, ReduceOp, Result};

/// A stream of a device, as its vendor's library takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(pub *mut c_void);

/// The most bytes of all ranks together that are gathered for a reduction that an engine lacks.
///
/// A link of 25 GB/s moves as much in 40 µs, about the time in which collectives begin, so that a call in this bound should
/// take little longer than one that the engine has. Beyond it every rank would need the memory of all ranks and receive the
/// data of all, where a ring passes twice one rank's on.
pub const GATHERED: usize = 1 << 20;

/// Whether data of a type are gathered: frameworks reduce them then, and torch adds no `uint64`.
#[must_use]
pub const fn is_gathered(dtype: DType) -> bool {
    !matches!(dtype, DType::UInt64)
}

/// A reduction that an engine has, and the work that is left to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lowered {
    /// The reduction to call with.
    pub reduce: ReduceOp,
    /// Whether the caller multiplies the data to send by the call's factor.
    pub scale_sends: bool,
    /// Whether the caller divides the result by the number of ranks.
    pub divide_result: bool,
    /// Whether the caller gathers the data of all ranks, and reduces them in the order of the ranks.
    pub gathers: bool,
}

/// The facts that a rank has about another one without a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// The number of the rank.
    pub rank: usize,
    /// The number of its process.
    pub process: i32,
    /// Whether the process has ended without taking leave of the group.
    pub is_lost: bool,
    /// The last call that the rank has queued on a device, and its number.
    pub queued: Option<(Kind, u64)>,
}

/// One rank's end of a group.
pub trait Communicator: Send + Sync {
    /// The number of this rank.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// The name of the engine.
    fn engine(&self) -> &'static str;

    /// The library of the engine, with its version if the library tells it.
    fn library(&self) -> Option<String>;

    /// Whether calls are queued on a stream, and done when the stream has run them. Otherwise calls are done on
    /// return, and several threads may be in calls at once: one in collectives, any number in transfers.
    fn on_streams(&self) -> bool;

    /// Issues a call: runs it, or queues it on the stream.
    ///
    /// # Safety
    /// The buffers are valid for the call's counts until the call is done; `stream` is one of the buffers' device.
    unsafe fn issue(&self, call: &Collective<'_>, stream: Stream) -> Result<()>;

    /// Runs a receive without a rank. Returns the rank that sent.
    ///
    /// # Safety
    /// As [`Communicator::issue`].
    unsafe fn receive_any(&self, call: &Collective<'_>) -> Result<usize>;

    /// Whether the engine has this reduction of a type. If not, [`Communicator::lower`] tells how to compose it.
    fn reduces(&self, op: ReduceOp, dtype: DType) -> bool;

    /// Notes a call for which the caller gathers this many bytes of all ranks, because the engine lacks its reduction.
    fn note_gathered(&self, _op: ReduceOp, _dtype: DType, _bytes: usize) {}

    /// The reduction to call with, and the work left to the caller where the engine lacks the call's reduction. Fails for
    /// one that would have to gather more than [`GATHERED`].
    fn lower(&self, call: &Collective<'_>) -> Result<Lowered> {
        let (given, dtype) = (call.reduce, call.dtype);
        if !call.kind.reduces() || self.reduces(given, dtype) {
            return Ok(Lowered {
                reduce: given,
                scale_sends: false,
                divide_result: false,
                gathers: false,
            });
        }
        given.check(dtype)?;
        let reduce = match given {
            ReduceOp::PremulSum | ReduceOp::Avg => ReduceOp::Sum,
            other => other,
        };
        let gathers = !self.reduces(reduce, dtype);
        if gathers {
            let bytes = call.bytes() * self.size();
            let lacks = |instead: &str| {
                Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{call} on rank {}: {} has no {} of {}, and flagos gathers {instead}, or tensors on the CPU",
                        self.rank(),
                        self.library().unwrap_or_else(|| self.engine().to_owned()),
                        reduce.name(),
                        dtype.name(),
                    ),
                ))
            };
            if !is_gathered(dtype) {
                return lacks("none for it: reduce another type");
            }
            if bytes > GATHERED {
                return lacks(&format!(
                    "no more than {} of all ranks for it, not {}: reduce another type, smaller parts",
                    size_of_bytes(GATHERED),
                    size_of_bytes(bytes),
                ));
            }
            self.note_gathered(reduce, dtype, bytes);
        }
        Ok(Lowered {
            reduce,
            scale_sends: given == ReduceOp::PremulSum,
            divide_result: given == ReduceOp::Avg
                && (call.kind != Kind::Reduce || call.root == Some(self.rank())),
            gathers,
        })
    }

    /// Begins a group of calls of this thread, which may be queued as one.
    fn group_start(&self) -> Result<()>;

    /// Ends the group of calls.
    fn group_end(&self) -> Result<()>;

    /// Ends all calls of the communicator with `reason`, on this rank and, if the engine can, on the others.
    fn abort(&self, reason: &str);

    /// A failure that happened after a call had returned.
    fn async_error(&self) -> Result<()>;

    /// Tells the others of a call that this rank queues on a device, if the engine can.
    fn note_queued(&self, _kind: Kind, _sequence: u64) {}

    /// The other ranks, if the engine knows them.
    fn others(&self) -> Vec<Other> {
        vec![]
    }

    /// The state of the ranks, as far as it is known, for a report.
    fn state(&self) -> serde_json::Value;
}
