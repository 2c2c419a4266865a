//! Events of a driver.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Event;

use super::{DriverDevice, Handle};

/// A driver's functions of events.
pub trait DriverEvents: DriverDevice {
    /// A new event.
    fn new_event(&self, timing: bool) -> Result<Handle>;

    /// Whether the event's record has been reached.
    fn is_reached(&self, event: &DriverEvent<Self>) -> Result<bool>;

    /// Waits for the event's record.
    fn wait_for_event(&self, event: &DriverEvent<Self>) -> Result<()>;

    /// Milliseconds between the records of events with timing; `None` when one of them has not been reached. An error has
    /// its device.
    fn elapsed(&self, start: &DriverEvent<Self>, end: &DriverEvent<Self>) -> Result<Option<f32>>;

    /// Takes an event that nobody uses any more. The device is not current.
    fn give_back_event(&self, event: Handle, timing: bool);
}

/// An event of a device. Its handle may have served another event before, whose record is not this one's.
pub struct DriverEvent<D: DriverEvents> {
    device: Arc<D>,
    handle: Handle,
    timing: bool,
    recorded: AtomicBool,
    /// Whether the record is part of a graph.
    captured: AtomicBool,
}

// SAFETY: drivers' handles may be used from every thread.
unsafe impl<D: DriverEvents> Send for DriverEvent<D> {}
// SAFETY: as above.
unsafe impl<D: DriverEvents> Sync for DriverEvent<D> {}

impl<D: DriverEvents> DriverEvent<D> {
    /// A new event.
    pub fn new(device: &Arc<D>, timing: bool) -> Result<Self> {
        let _entered = device.enter("event")?;
        let handle = device.new_event(timing);
        Ok(Self {
            handle: handle.map_err(|error| device.located(error))?,
            device: Arc::clone(device),
            timing,
            recorded: AtomicBool::new(false),
            captured: AtomicBool::new(false),
        })
    }

    /// The vendor's own type of an event. Fails for an event of another vendor.
    pub fn from_dyn(event: &dyn Event) -> Result<&Self> {
        event.as_any().downcast_ref().ok_or_else(|| {
            Error::invalid_argument("event", "the event belongs to another vendor")
                .with_hint("make events and streams with the same vendor")
        })
    }

    /// As [`DriverEvent::from_dyn`], for a record on a stream of `device`. Fails for an event of another device.
    pub fn to_record<'e>(event: &'e dyn Event, device: &D) -> Result<&'e Self> {
        let event = Self::from_dyn(event)?;
        let (own, index) = (event.device.index(), device.index());
        if own == index {
            return Ok(event);
        }
        let message =
            format!("an event of device {own} was recorded on a stream of device {index}");
        Err(Error::invalid_argument("event_record", message)
            .with_hint("make the event for the stream's device"))
    }

    /// The event's handle in the driver, which is live.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The number of the event's device.
    pub fn device(&self) -> usize {
        self.device.index()
    }

    /// Whether the event was ever recorded.
    pub fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }

    /// Notes a record, and whether it became part of a graph.
    pub fn set_recorded(&self, captured: bool) {
        self.captured.store(captured, Ordering::Release);
        self.recorded.store(true, Ordering::Release);
    }

    /// Fails for a record in a graph, which nothing ever reaches.
    fn refuse_captured(&self, operation: &'static str) -> Result<()> {
        if !self.captured.load(Ordering::Acquire) {
            return Ok(());
        }
        let message = "the event was recorded in a capture: it orders the work of the graph, and nobody can wait for it";
        Err(Error::unsupported(operation, message)
            .with_hint("record it again, outside of the capture"))
    }

    /// Fails for an event without a time.
    fn timed(&self) -> Result<()> {
        if !self.timing {
            let message = "an event was made without timing";
            return Err(no_time(message, "make it with enable_timing=True"));
        }
        if !self.is_recorded() {
            let message = "an event has not been recorded";
            return Err(no_time(message, "record both events first"));
        }
        self.refuse_captured("event_elapsed")
    }
}

#[cold]
fn no_time(message: &str, hint: &str) -> Error {
    Error::invalid_argument("event_elapsed", message).with_hint(hint)
}

impl<D: DriverEvents> Event for DriverEvent<D> {
    fn query(&self) -> Result<bool> {
        if !self.is_recorded() {
            return Ok(true);
        }
        self.refuse_captured("event_query")?;
        let _entered = self.device.enter("event_query")?;
        self.device
            .is_reached(self)
            .map_err(|error| self.device.located(error))
    }

    fn sync(&self) -> Result<()> {
        if !self.is_recorded() {
            return Ok(());
        }
        self.refuse_captured("event_sync")?;
        let _entered = self.device.enter("event_sync")?;
        self.device
            .wait_for_event(self)
            .map_err(|error| self.device.located(error))
    }

    fn elapsed_ms(&self, end: &dyn Event) -> Result<f64> {
        let end = Self::from_dyn(end)?;
        self.timed()?;
        end.timed()?;
        if end.device() != self.device() {
            let message = "the events belong to different devices, whose clocks differ";
            return Err(no_time(message, "record both events on one device"));
        }
        let _entered = self.device.enter("event_elapsed")?;
        let elapsed = self.device.elapsed(self, end)?;
        elapsed.map(f64::from).ok_or_else(|| {
            let message = "an event has not finished";
            no_time(message, "synchronize with both events first")
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<D: DriverEvents> Drop for DriverEvent<D> {
    fn drop(&mut self) {
        // In a forked child the handle is invalid.
        if !D::process().is_forked() {
            self.device.give_back_event(self.handle, self.timing);
        }
    }
}
