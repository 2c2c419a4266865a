//! Events of MACA's runtime.

use std::ptr::null_mut;

use flagos_core::error::Result;
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{Discarded, DriverDevice as _, DriverEvent, DriverEvents};

use super::api::{EVENT_DEFAULT, EVENT_DISABLE_TIMING, Handle, NOT_READY, SUCCESS};
use super::device::Device;
use super::error::failed;

impl DriverEvents for Device {
    fn new_event(&self, timing: bool) -> Result<Handle> {
        let flags = if timing {
            EVENT_DEFAULT
        } else {
            EVENT_DISABLE_TIMING
        };
        let mut event = null_mut();
        // SAFETY: a valid output.
        unsafe { call!(self.api, mcEventCreateWithFlags(&mut event, flags)) }?;
        Ok(event)
    }

    fn is_reached(&self, event: &DriverEvent<Self>) -> Result<bool> {
        // SAFETY: a live event.
        match unsafe { (self.api.mcEventQuery)(event.handle()) } {
            SUCCESS => Ok(true),
            NOT_READY => {
                self.api.forget_failure();
                Ok(false)
            }
            code => Err(failed(self.api, "mcEventQuery", code)),
        }
    }

    fn wait_for_event(&self, event: &DriverEvent<Self>) -> Result<()> {
        // SAFETY: a live event.
        unsafe { call!(self.api, mcEventSynchronize(event.handle())) }
    }

    fn elapsed(&self, start: &DriverEvent<Self>, end: &DriverEvent<Self>) -> Result<Option<f32>> {
        let mut elapsed = 0.0_f32;
        // SAFETY: a valid output and live events.
        match unsafe { (self.api.mcEventElapsedTime)(&mut elapsed, start.handle(), end.handle()) } {
            SUCCESS => Ok(Some(elapsed)),
            NOT_READY => {
                self.api.forget_failure();
                Ok(None)
            }
            code => Err(self.located(failed(self.api, "mcEventElapsedTime", code))),
        }
    }

    fn give_back_event(&self, event: Handle, _timing: bool) {
        self.discard(Discarded::Event(event));
    }
}
