//! Events of the host: a place in a stream's queue.

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::runtime::Event;

use super::stream::WorkQueue;
use super::work::refuse_in_work;

/// Nanoseconds since some moment before the first event.
pub(super) fn now() -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    EPOCH.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// What the worker notes when it reaches a recorded event.
#[derive(Debug)]
pub(super) struct Stamp {
    timing: bool,
    time: OnceLock<u64>,
    error: OnceLock<Error>,
}

impl Stamp {
    /// An empty stamp. Without `timing` it will not look at the clock.
    pub(super) fn new(timing: bool) -> Self {
        Self {
            timing,
            time: OnceLock::new(),
            error: OnceLock::new(),
        }
    }

    /// A stamp of this moment, with what went wrong on the stream before.
    pub(super) fn set(&self, error: Option<Error>) {
        // The worker sets a stamp once; the result of `set` carries nothing new.
        if self.timing {
            let _ = self.time.set(now());
        }
        if let Some(error) = error {
            let _ = self.error.set(error);
        }
    }
}

/// What an event stands for.
#[derive(Clone)]
pub(super) struct Recorded {
    queue: Arc<WorkQueue>,
    place: u64,
    stamp: Arc<Stamp>,
}

impl Recorded {
    /// The item at `place` of `queue` sets `stamp`.
    pub(super) fn new(queue: Arc<WorkQueue>, place: u64, stamp: Arc<Stamp>) -> Self {
        Self {
            queue,
            place,
            stamp,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.queue.has_passed(self.place)
    }

    /// Whether work of `queue` comes after it anyway.
    pub(super) fn is_on(&self, queue: &Arc<WorkQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// Waits, on whatever thread this is.
    pub(super) fn wait(&self) -> Result<()> {
        self.queue.wait_for(self.place);
        self.outcome()
    }

    /// What went wrong before it, reported: its stream does not report it again.
    pub(super) fn report(&self) -> Result<()> {
        let outcome = self.outcome();
        if let Err(error) = &outcome {
            self.queue.forget_error(error);
        }
        outcome
    }

    /// What went wrong before it. Only valid once it is over.
    pub(super) fn outcome(&self) -> Result<()> {
        match self.stamp.error.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// An event of a host device.
pub(super) struct HostEvent {
    pub(super) device: usize,
    pub(super) timing: bool,
    recorded: Mutex<Option<Recorded>>,
}

impl HostEvent {
    pub(super) fn new(device: usize, timing: bool) -> Self {
        Self {
            device,
            timing,
            recorded: Mutex::new(None),
        }
    }

    pub(super) fn from_dyn(event: &dyn Event) -> Result<&Self> {
        event.as_any().downcast_ref().ok_or_else(|| {
            Error::invalid_argument("event", "the event belongs to another vendor")
                .with_hint("make events and streams with the same vendor")
        })
    }

    pub(super) fn record(&self, recorded: Recorded) {
        *self.recorded.lock() = Some(recorded);
    }

    pub(super) fn recorded(&self) -> Option<Recorded> {
        self.recorded.lock().clone()
    }

    /// The moment it stands for, in nanoseconds.
    fn time(&self) -> Result<u64> {
        let wrong = |message, hint: &str| {
            Err(Error::invalid_argument("event_elapsed", message).with_hint(hint))
        };
        if !self.timing {
            return wrong(
                "an event was made without timing",
                "make it with enable_timing=True",
            );
        }
        let Some(recorded) = self.recorded() else {
            return wrong("an event has not been recorded", "record both events first");
        };
        match recorded.stamp.time.get() {
            Some(time) if recorded.is_over() => Ok(*time),
            _ => wrong(
                "an event has not finished",
                "synchronize with both events first",
            ),
        }
    }
}

impl Event for HostEvent {
    fn query(&self) -> Result<bool> {
        let recorded = self.recorded.lock();
        match &*recorded {
            Some(recorded) if !recorded.is_over() => Ok(false),
            Some(recorded) => recorded.report().map(|()| true),
            None => Ok(true),
        }
    }

    fn sync(&self) -> Result<()> {
        let Some(recorded) = self.recorded() else {
            return Ok(());
        };
        if !recorded.is_over() {
            refuse_in_work("event_sync")?;
        }
        recorded.wait().or_else(|_| recorded.report())
    }

    fn elapsed_ms(&self, end: &dyn Event) -> Result<f64> {
        let end = Self::from_dyn(end)?.time()?;
        let nanoseconds = end as i64 - self.time()? as i64;
        Ok(nanoseconds as f64 / 1e6)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
