//! Events of the ACL runtime.

use flagos_core::error::{Error, Result};
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{DriverDevice as _, DriverEvent, DriverEvents};

use super::api::{EVENT_SYNC, EVENT_TIME_LINE, Handle, RECORD_COMPLETE, SUCCESS};
use super::device::Device;
use super::error::{TIMESTAMP_INVALID, TIMESTAMP_REVERSAL, failed};

impl DriverEvents for Device {
    /// An event, new or used before. [`Device::keep_event`] takes it back.
    fn new_event(&self, timing: bool) -> Result<Handle> {
        if let Some(event) = self.take_event(timing) {
            return Ok(event);
        }
        let flags = if timing {
            EVENT_SYNC | EVENT_TIME_LINE
        } else {
            EVENT_SYNC
        };
        let mut event = std::ptr::null_mut();
        // SAFETY: a valid output.
        unsafe { call!(self.api, aclrtCreateEventExWithFlag(&mut event, flags)) }?;
        Ok(event)
    }

    fn is_reached(&self, event: &DriverEvent<Self>) -> Result<bool> {
        let mut status = RECORD_COMPLETE;
        // SAFETY: a live event, and a valid output.
        unsafe { call!(self.api, aclrtQueryEventStatus(event.handle(), &mut status)) }?;
        Ok(status == RECORD_COMPLETE)
    }

    fn wait_for_event(&self, event: &DriverEvent<Self>) -> Result<()> {
        // SAFETY: a live event.
        unsafe { call!(self.api, aclrtSynchronizeEvent(event.handle())) }
    }

    fn elapsed(&self, start: &DriverEvent<Self>, end: &DriverEvent<Self>) -> Result<Option<f32>> {
        for event in [start, end] {
            if !self
                .is_reached(event)
                .map_err(|error| self.located(error))?
            {
                return Ok(None);
            }
        }
        let elapsed = match self.between(start, end) {
            // The runtime refuses a time that is negative.
            Err(TIMESTAMP_REVERSAL) => {
                drop(self.api.recent_error());
                self.between(end, start).map(|elapsed| -elapsed)
            }
            elapsed => elapsed,
        };
        elapsed.map(Some).map_err(|code| {
            let error = failed(self.api, "aclrtEventElapsedTime", code);
            match code {
                TIMESTAMP_INVALID => Error::invalid_argument("event_elapsed", error.to_string()),
                _ => self.located(error),
            }
        })
    }

    fn give_back_event(&self, event: Handle, timing: bool) {
        self.keep_event(timing, event);
    }
}

impl Device {
    /// Milliseconds, or the code of the failure. The context is current.
    fn between(&self, start: &DriverEvent<Self>, end: &DriverEvent<Self>) -> Result<f32, i32> {
        let mut elapsed = 0.0;
        // SAFETY: a valid output and live events.
        match unsafe {
            (self.api.aclrtEventElapsedTime)(&mut elapsed, start.handle(), end.handle())
        } {
            SUCCESS => Ok(elapsed),
            code => Err(code),
        }
    }
}
