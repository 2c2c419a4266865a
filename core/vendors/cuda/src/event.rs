//! Events of CUDA.

use cudarc::driver::sys::{CUevent_flags, CUresult};

use flagos_core::error::Result;
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{Discarded, DriverDevice as _, DriverEvent, DriverEvents, Handle};

use super::api::{Code, SUCCESS};
use super::device::Device;
use super::error::failed;

/// `CUDA_ERROR_NOT_READY`: work has not finished, which is no error.
pub(super) const NOT_READY: Code = CUresult::CUDA_ERROR_NOT_READY as Code;

impl DriverEvents for Device {
    fn new_event(&self, timing: bool) -> Result<Handle> {
        let flags = if timing {
            CUevent_flags::CU_EVENT_DEFAULT
        } else {
            CUevent_flags::CU_EVENT_DISABLE_TIMING
        };
        let mut event = std::ptr::null_mut();
        // SAFETY: a valid output.
        unsafe { call!(self.api, cuEventCreate(&mut event, flags as u32)) }?;
        Ok(event.cast())
    }

    fn is_reached(&self, event: &DriverEvent<Self>) -> Result<bool> {
        // SAFETY: a live event.
        match unsafe { (self.api.cuEventQuery)(event.handle().cast()) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(failed(self.api, "cuEventQuery", code)),
        }
    }

    fn wait_for_event(&self, event: &DriverEvent<Self>) -> Result<()> {
        // SAFETY: a live event.
        unsafe { call!(self.api, cuEventSynchronize(event.handle().cast())) }
    }

    /// With a resolution of about half a microsecond.
    fn elapsed(&self, start: &DriverEvent<Self>, end: &DriverEvent<Self>) -> Result<Option<f32>> {
        let mut elapsed = 0.0_f32;
        // SAFETY: a valid output and live events.
        match unsafe {
            (self.api.cuEventElapsedTime)(&mut elapsed, start.handle().cast(), end.handle().cast())
        } {
            SUCCESS => Ok(Some(elapsed)),
            NOT_READY => Ok(None),
            code => Err(self.located(failed(self.api, "cuEventElapsedTime", code))),
        }
    }

    fn give_back_event(&self, event: Handle, _timing: bool) {
        self.discard(Discarded::Event(event));
    }
}
