//! Events of the ACL runtime.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Event;

use super::api::{EVENT_SYNC, EVENT_TIME_LINE, Handle, RECORD_COMPLETE, SUCCESS};
use super::device::Device;
use super::driver;
use super::error::{TIMESTAMP_INVALID, TIMESTAMP_REVERSAL, acl, failed};

/// An event of a device. Its handle may have served another event before, whose record is not this one's.
pub(super) struct AscendEvent {
    pub(super) device: Arc<Device>,
    pub(super) handle: Handle,
    timing: bool,
    recorded: AtomicBool,
    /// Whether the record is part of a graph.
    captured: AtomicBool,
}

// SAFETY: the runtime's handles may be used from every thread.
unsafe impl Send for AscendEvent {}
// SAFETY: as above.
unsafe impl Sync for AscendEvent {}

/// The handle of an event, new or used before, on a device whose context is current. [`Device::keep_event`] takes it back.
pub(super) fn take_handle(device: &Device, timing: bool) -> Result<Handle> {
    if let Some(handle) = device.take_event(timing) {
        return Ok(handle);
    }
    let flags = if timing {
        EVENT_SYNC | EVENT_TIME_LINE
    } else {
        EVENT_SYNC
    };
    let mut handle = std::ptr::null_mut();
    // SAFETY: a valid output.
    unsafe { acl!(device.api, aclrtCreateEventExWithFlag(&mut handle, flags)) }
        .map_err(|error| device.located(error))?;
    Ok(handle)
}

impl AscendEvent {
    pub(super) fn new(device: &Arc<Device>, timing: bool) -> Result<Self> {
        let _entered = device.enter("event")?;
        Ok(Self {
            device: Arc::clone(device),
            handle: take_handle(device, timing)?,
            timing,
            recorded: AtomicBool::new(false),
            captured: AtomicBool::new(false),
        })
    }

    pub(super) fn from_dyn(event: &dyn Event) -> Result<&Self> {
        event.as_any().downcast_ref().ok_or_else(|| {
            Error::invalid_argument("event", "the event belongs to another vendor")
                .with_hint("make events and streams with the same vendor")
        })
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }

    pub(super) fn set_recorded(&self) {
        self.recorded.store(true, Ordering::Release);
    }

    /// Notes whether the record that follows becomes part of a graph.
    pub(super) fn set_captured(&self, captured: bool) {
        self.captured.store(captured, Ordering::Release);
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

    /// Fails for an event without a time that could be read now.
    fn timed(&self) -> Result<()> {
        let wrong = |message, hint: &str| {
            Err(Error::invalid_argument("event_elapsed", message).with_hint(hint))
        };
        if !self.timing {
            return wrong(
                "an event was made without timing",
                "make it with enable_timing=True",
            );
        }
        if !self.is_recorded() {
            return wrong("an event has not been recorded", "record both events first");
        }
        if !self.query()? {
            return wrong(
                "an event has not finished",
                "synchronize with both events first",
            );
        }
        Ok(())
    }

    /// Milliseconds, or the code of the failure. The context is current.
    fn between(&self, end: &Self) -> Result<f32, i32> {
        let mut elapsed = 0.0;
        // SAFETY: a valid output and live events.
        let code = unsafe {
            (self.device.api.aclrtEventElapsedTime)(&mut elapsed, self.handle, end.handle)
        };
        if code == SUCCESS {
            return Ok(elapsed);
        }
        Err(code)
    }
}

impl Event for AscendEvent {
    fn query(&self) -> Result<bool> {
        if !self.is_recorded() {
            return Ok(true);
        }
        self.refuse_captured("event_query")?;
        let _entered = self.device.enter("event_query")?;
        let mut status = RECORD_COMPLETE;
        // SAFETY: a live event, and a valid output.
        unsafe {
            acl!(
                self.device.api,
                aclrtQueryEventStatus(self.handle, &mut status)
            )
        }
        .map_err(|error| self.device.located(error))?;
        Ok(status == RECORD_COMPLETE)
    }

    fn sync(&self) -> Result<()> {
        if !self.is_recorded() {
            return Ok(());
        }
        self.refuse_captured("event_sync")?;
        let _entered = self.device.enter("event_sync")?;
        // SAFETY: a live event.
        unsafe { acl!(self.device.api, aclrtSynchronizeEvent(self.handle)) }
            .map_err(|error| self.device.located(error))
    }

    fn elapsed_ms(&self, end: &dyn Event) -> Result<f64> {
        let end = Self::from_dyn(end)?;
        if end.device.index != self.device.index {
            let message = "the events belong to different devices, whose clocks differ";
            return Err(Error::invalid_argument("event_elapsed", message)
                .with_hint("record both events on one device"));
        }
        self.timed()?;
        end.timed()?;
        let _entered = self.device.enter("event_elapsed")?;
        let elapsed = match self.between(end) {
            // The runtime refuses a time that is negative.
            Err(TIMESTAMP_REVERSAL) => {
                drop(self.device.api.recent_error());
                end.between(self).map(|elapsed| -elapsed)
            }
            elapsed => elapsed,
        };
        elapsed.map(f64::from).map_err(|code| {
            let error = failed(self.device.api, "aclrtEventElapsedTime", code);
            match code {
                TIMESTAMP_INVALID => Error::invalid_argument("event_elapsed", error.to_string()),
                _ => self.device.located(error),
            }
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for AscendEvent {
    fn drop(&mut self) {
        // In a forked child the handle is invalid.
        if !driver::is_forked() {
            self.device.keep_event(self.timing, self.handle);
        }
    }
}
