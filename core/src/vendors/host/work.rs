//! The items of a host stream's queue, and how the worker runs them.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::runtime::HostFn;

use super::recorded::{Recorded, Stamp};

thread_local! {
    static IN_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as a stream's worker.
pub(super) fn enter() {
    IN_WORK.set(true);
}

/// Whether the calling thread runs work of a stream.
pub(super) fn in_work() -> bool {
    IN_WORK.get()
}

/// Fails in work of a stream, which must not wait for streams: it might wait for itself.
pub(super) fn refuse_in_work(operation: &'static str) -> Result<()> {
    if !in_work() {
        return Ok(());
    }
    let message = "work running on a stream cannot wait for streams";
    Err(Error::unsupported(operation, message).with_hint("queue the wait as an event instead"))
}

/// One queued item.
pub(super) enum Work {
    /// Call a function.
    Launch {
        function: HostFn,
        context: *mut c_void,
    },
    /// Copy bytes.
    Copy {
        dst: *mut u8,
        src: *const u8,
        nbytes: usize,
    },
    /// Fail, in place of a copy.
    Fail(Error),
    /// Note that an event is reached.
    Record(Arc<Stamp>),
    /// Wait for an event.
    Wait(Recorded<Work>),
}

// SAFETY: the callers of `Stream::copy` and `Stream::launch` promise that another thread may use the pointers
// until the item has run.
unsafe impl Send for Work {}

impl Work {
    /// Runs the item on the worker. `error` returns the stream's unreported error.
    pub(super) fn run(self, error: impl FnOnce() -> Option<Error>) -> Result<()> {
        match self {
            Self::Launch { function, context } => {
                // SAFETY: promised by the caller of `Stream::launch`; each item runs once.
                unsafe { function(context) };
                Ok(())
            }
            Self::Copy { dst, src, nbytes } => {
                // SAFETY: promised by the caller of `Stream::copy`. The ranges may overlap.
                unsafe { std::ptr::copy(src, dst, nbytes) };
                Ok(())
            }
            Self::Fail(error) => Err(error),
            Self::Record(stamp) => {
                stamp.set(error());
                Ok(())
            }
            // The stream that waits takes the failure over, so that it is reported once.
            Self::Wait(recorded) => recorded.wait().or_else(|_| recorded.report()),
        }
    }
}
