//! Events of the host.

use std::any::Any;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::runtime::Event;

use super::recorded::Recorded;
use super::work::{Work, refuse_in_work};

/// An event of a host device.
pub(super) struct HostEvent {
    pub(super) device: usize,
    pub(super) timing: bool,
    recorded: Mutex<Option<Recorded<Work>>>,
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

    pub(super) fn record(&self, recorded: Recorded<Work>) {
        *self.recorded.lock() = Some(recorded);
    }

    pub(super) fn recorded(&self) -> Option<Recorded<Work>> {
        self.recorded.lock().clone()
    }

    /// The time at which the recorded work finished, in nanoseconds.
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
        let unfinished = || {
            wrong(
                "an event has not finished",
                "synchronize with both events first",
            )
        };
        recorded.time().map_or_else(unfinished, Ok)
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
