//! Calls on host memory: one lane for collectives, in order, and one for each rank and direction of transfers, which
//! must not wait for each other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::flight_recorder::FlightRecorder;
use super::lane::{After, Lane};
use crate::communicator::Stream;
use crate::error::catch_panic;
use crate::{Collective, Communicator, ErrorKind, Kind, Result};

/// Is told how a queued call ended: for a receive from any rank, with that rank.
pub type Ended = Box<dyn FnOnce(Result<Option<usize>>) -> Option<After> + Send>;

/// A call whose lists and buffers stay valid until it has ended.
pub struct QueuedCall(Collective<'static>);

// SAFETY: the addresses belong to whoever queued the call, who leaves them alone until it has ended.
unsafe impl Send for QueuedCall {}

impl QueuedCall {
    /// # Safety
    /// The lists and the buffers of `call` are valid until the call has ended, and used by nobody else.
    pub unsafe fn new(call: &Collective<'_>) -> Self {
        // SAFETY: only the lifetime changes; the caller promises that the lists live long enough.
        Self(unsafe { std::mem::transmute::<Collective<'_>, Collective<'static>>(call.clone()) })
    }
}

/// The communicator with the log of its calls: what a queued call needs, even when the group has gone.
struct Runner {
    communicator: Box<dyn Communicator>,
    recorder: Arc<FlightRecorder>,
}

impl Runner {
    /// # Safety
    /// As [`Communicator::run`].
    unsafe fn run(&self, call: &Collective<'_>, number: u64) -> Result<Option<usize>> {
        // SAFETY: the caller's promise.
        let outcome = unsafe {
            if call.kind == Kind::Recv && call.root.is_none() {
                self.communicator.receive_any(call).map(Some)
            } else {
                let nowhere = Stream(std::ptr::null_mut());
                self.communicator.run(call, nowhere).map(|()| None)
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
    runner: Arc<Runner>,
    collectives: Lane,
    transfers: Mutex<HashMap<(Option<usize>, bool), Lane>>,
}

impl Host {
    pub(super) fn new(communicator: Box<dyn Communicator>, recorder: Arc<FlightRecorder>) -> Self {
        Self {
            runner: Arc::new(Runner {
                communicator,
                recorder,
            }),
            collectives: Lane::default(),
            transfers: Mutex::default(),
        }
    }

    pub(super) fn communicator(&self) -> &dyn Communicator {
        &*self.runner.communicator
    }

    /// Whether no collective is queued or running in the lane, so that [`Host::run`] keeps the order.
    pub fn is_idle(&self) -> bool {
        self.collectives.is_idle()
    }

    /// Runs a collective on this thread.
    ///
    /// # Safety
    /// As [`Communicator::run`].
    pub unsafe fn run(&self, call: &Collective<'_>) -> Result<()> {
        let number = self.runner.recorder.begin(call, false);
        // SAFETY: the caller's promise.
        unsafe { self.runner.run(call, number) }.map(drop)
    }

    /// Queues a call behind those of its lane. `ended` runs on the lane's thread; it is dropped when this fails.
    pub fn queue(&self, call: QueuedCall, asynchronous: bool, ended: Ended) -> Result<()> {
        let number = self.runner.recorder.begin(&call.0, asynchronous);
        let (kind, root) = (call.0.kind, call.0.root);
        let runner = self.runner.clone();
        let task = Box::new(move || {
            let call = call; // the whole, which may change threads
                             // SAFETY: promised to `QueuedCall::new`.
            let outcome = catch_panic(|| unsafe { runner.run(&call.0, number) });
            drop(runner); // whoever waits may expect that a group which was closed is gone
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
