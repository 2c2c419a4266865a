//! The trait behind which engines are: one rank's end of a group.

use std::ffi::c_void;

use crate::{Collective, Result};

/// A stream of a device, as its vendor's library takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(pub *mut c_void);

/// One rank's end of a group.
pub trait Communicator: Send + Sync {
    /// The name of its engine.
    fn engine(&self) -> &'static str;

    /// The library behind it, with its version where it tells one.
    fn library(&self) -> Option<String>;

    /// Whether calls are queued on a stream and done when the stream got there. Otherwise they are done on
    /// return, and several threads may be in calls at once: one in collectives, any number in transfers.
    fn on_streams(&self) -> bool;

    /// Runs or queues a call.
    ///
    /// # Safety
    /// The buffers are valid for the call's counts until it is done; `stream` is one of the buffers' device.
    unsafe fn run(&self, call: &Collective<'_>, stream: Stream) -> Result<()>;

    /// Runs a receive without a rank; returns the rank it was from.
    ///
    /// # Safety
    /// As [`Communicator::run`].
    unsafe fn receive_any(&self, call: &Collective<'_>) -> Result<usize>;

    /// Begins calls that may be queued as one, of this thread.
    fn group_start(&self) -> Result<()>;

    /// Ends them.
    fn group_end(&self) -> Result<()>;

    /// Ends all calls of the group, here and where the engine can on the other ranks, with `reason`.
    fn abort(&self, reason: &str);

    /// A failure that happened after a call had returned.
    fn async_error(&self) -> Result<()>;

    /// What is known of the ranks, for a report.
    fn state(&self) -> serde_json::Value;
}
