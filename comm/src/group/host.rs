//! Calls on host memory: one lane runs the collectives in order, and each rank and direction of transfers has a lane,
//! because transfers must not wait for each other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::flight_recorder::FlightRecorder;
use super::lane::{After, Lane};
use crate::communicator::Stream;
use crate::error::catch_panic;
use crate::{Collective, Communicator, ErrorKind, Kind, Result};

/// The callback with the outcome of a queued call; of a receive from any rank, the rank that sent.
pub type Ended = Box<dyn FnOnce(Result<Option<usize>>) -> Option<After> + Send>;

/// A call whose lists and buffers stay valid until it has ended.
pub struct QueuedCall(Collective<'static>);

// SAFETY: the thread that queued the call owns the buffers, and does not use them until the call has ended.
unsafe impl Send for QueuedCall {}

impl QueuedCall {
    /// # Safety
    /// The lists and the buffers of `call` are valid until the call has ended, and not used otherwise.
    pub unsafe fn new(call: &Collective<'_>) -> Self {
        // SAFETY: only the lifetime changes; the caller promises that the lists live long enough.
        Self(unsafe { std::mem::transmute::<Collective<'_>, Collective<'static>>(call.clone()) })
    }
}

/// The communicator with the log of its calls, which a queued call keeps alive when the group is closed.
struct Recorded {
    communicator: Box<dyn Communicator>,
    recorder: Arc<FlightRecorder>,
}

impl Recorded {
    /// Completes a call and records its end under its number. Returns the rank that sent, of a receive from any rank.
    ///
    /// # Safety
    /// As [`Communicator::issue`].
    unsafe fn complete(&self, call: &Collective<'_>, number: u64) -> Result<Option<usize>> {
        // SAFETY: the caller's promise.
        let outcome = unsafe {
            if call.kind == Kind::Recv && call.root.is_none() {
                self.communicator.receive_any(call).map(Some)
            } else {
                let nowhere = Stream(std::ptr::null_mut());
                self.communicator.issue(call, nowhere).map(|()| None)
            }
        };
        self.recorder.ended(number, outcome.is_ok());
        if let Err(error) = &outcome {
            if !matches!(
                error.kind(),
                ErrorKind::InvalidArgument | ErrorKind::Unsupported
            ) {
                let state = self.communicator.state();
                self.recorder.report(&state, &error.to_string());
            }
        }
        outcome
    }
}

/// The ranks of a group on host memory.
pub struct Host {
    recorded: Arc<Recorded>,
    collectives: Lane,
    transfers: Mutex<HashMap<(Option<usize>, bool), Lane>>,
}

impl Host {
    pub(super) fn new(communicator: Box<dyn Communicator>, recorder: Arc<FlightRecorder>) -> Self {
        Self {
            recorded: Arc::new(Recorded {
                communicator,
                recorder,
            }),
            collectives: Lane::default(),
            transfers: Mutex::default(),
        }
    }

    pub(super) fn communicator(&self) -> &dyn Communicator {
        &*self.recorded.communicator
    }

    /// Whether no collective is queued or running in the lane, so that [`Host::run`] keeps the order.
    pub fn is_idle(&self) -> bool {
        self.collectives.is_idle()
    }

    /// Runs a collective on this thread.
    ///
    /// # Safety
    /// As [`Communicator::issue`].
    pub unsafe fn run(&self, call: &Collective<'_>) -> Result<()> {
        let number = self.recorded.recorder.begin(call, false);
        // SAFETY: the caller's promise.
        unsafe { self.recorded.complete(call, number) }.map(drop)
    }

    /// Queues a call behind those of its lane. `ended` runs on the lane's thread, and is dropped when this call fails.
    pub fn queue(&self, call: QueuedCall, asynchronous: bool, ended: Ended) -> Result<()> {
        let number = self.recorded.recorder.begin(&call.0, asynchronous);
        let (kind, root) = (call.0.kind, call.0.root);
        let recorded = self.recorded.clone();
        let task = Box::new(move || {
            let call = call; // moves the whole call, which is `Send`, and not its parts
            // SAFETY: promised to `QueuedCall::new`.
            let outcome = catch_panic(|| unsafe { recorded.complete(&call.0, number) });
            drop(recorded); // before `ended`, after which a closed group must be gone
            ended(outcome)
        });
        if matches!(kind, Kind::Send | Kind::Recv) {
            let mut transfers = self.transfers.lock();
            let lane = transfers.entry((root, kind == Kind::Send)).or_default();
            return lane.push(task);
        }
        self.collectives.push(task)
    }
}
