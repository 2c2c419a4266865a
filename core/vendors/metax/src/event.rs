//! Events of MACA's runtime.

use std::any::Any;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Event;

use super::api::{EVENT_DEFAULT, EVENT_DISABLE_TIMING, Handle, NOT_READY, SUCCESS};
use super::device::{Device, Discarded};
use super::error::{failed, mc};

/// An event of a device.
pub(super) struct MetaxEvent {
    pub(super) device: Arc<Device>,
    pub(super) handle: Handle,
    timing: bool,
    recorded: AtomicBool,
}

// SAFETY: the runtime's handles may be used from every thread.
unsafe impl Send for MetaxEvent {}
// SAFETY: as above.
unsafe impl Sync for MetaxEvent {}

impl MetaxEvent {
    pub(super) fn new(device: &Arc<Device>, timing: bool) -> Result<Self> {
        let flags = if timing {
            EVENT_DEFAULT
        } else {
            EVENT_DISABLE_TIMING
        };
        let mut handle = null_mut();
        let _entered = device.enter("event")?;
        // SAFETY: a valid output.
        unsafe { mc!(device.api, mcEventCreateWithFlags(&mut handle, flags)) }
            .map_err(|error| device.located(error))?;
        Ok(Self {
            device: Arc::clone(device),
            handle,
            timing,
            recorded: AtomicBool::new(false),
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

    /// Fails for an event without a time.
    fn timed(&self) -> Result<()> {
        let wrong = |message, hint: &str| {
            Err(Error::invalid_argument("event_elapsed", message).with_hint(hint))
        };
        match (self.timing, self.is_recorded()) {
            (false, _) => wrong(
                "an event was made without timing",
                "make it with enable_timing=True",
            ),
            (true, false) => wrong("an event has not been recorded", "record both events first"),
            (true, true) => Ok(()),
        }
    }
}

impl Event for MetaxEvent {
    fn query(&self) -> Result<bool> {
        if !self.is_recorded() {
            return Ok(true);
        }
        let _entered = self.device.enter("event_query")?;
        let api = self.device.api;
        // SAFETY: a live event.
        match unsafe { (api.mcEventQuery)(self.handle) } {
            SUCCESS => Ok(true),
            NOT_READY => {
                api.forget_failure();
                Ok(false)
            }
            code => Err(self.device.located(failed(api, "mcEventQuery", code))),
        }
    }

    fn sync(&self) -> Result<()> {
        if !self.is_recorded() {
            return Ok(());
        }
        let _entered = self.device.enter("event_sync")?;
        // SAFETY: a live event.
        unsafe { mc!(self.device.api, mcEventSynchronize(self.handle)) }
            .map_err(|error| self.device.located(error))
    }

    fn elapsed_ms(&self, end: &dyn Event) -> Result<f64> {
        let end = Self::from_dyn(end)?;
        self.timed()?;
        end.timed()?;
        if end.device.index != self.device.index {
            let message = "the events belong to different devices, whose clocks differ";
            return Err(Error::invalid_argument("event_elapsed", message)
                .with_hint("record both events on one device"));
        }
        let _entered = self.device.enter("event_elapsed")?;
        let api = self.device.api;
        let mut elapsed = 0.0_f32;
        // SAFETY: a valid output and live events.
        match unsafe { (api.mcEventElapsedTime)(&mut elapsed, self.handle, end.handle) } {
            SUCCESS => Ok(f64::from(elapsed)),
            NOT_READY => {
                api.forget_failure();
                let message = "an event has not finished";
                Err(Error::invalid_argument("event_elapsed", message)
                    .with_hint("synchronize with both events first"))
            }
            code => Err(self.device.located(failed(api, "mcEventElapsedTime", code))),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for MetaxEvent {
    fn drop(&mut self) {
        self.device.discard(Discarded::Event(self.handle));
    }
}
