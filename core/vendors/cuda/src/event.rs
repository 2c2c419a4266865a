//! Events of CUDA.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{CUevent, CUevent_flags, CUresult};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Event;

use super::api::{Code, SUCCESS};
use super::device::{Device, Discarded};
use super::error::{cuda, failed};

/// `CUDA_ERROR_NOT_READY`: work has not finished, which is no error.
pub(super) const NOT_READY: Code = CUresult::CUDA_ERROR_NOT_READY as Code;

/// An event of a device.
pub(super) struct CudaEvent {
    pub(super) device: Arc<Device>,
    pub(super) handle: CUevent,
    timing: bool,
    recorded: AtomicBool,
}

// SAFETY: CUDA's handles may be used from every thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    pub(super) fn new(device: &Arc<Device>, timing: bool) -> Result<Self> {
        let flags = if timing {
            CUevent_flags::CU_EVENT_DEFAULT
        } else {
            CUevent_flags::CU_EVENT_DISABLE_TIMING
        };
        let mut handle = std::ptr::null_mut();
        let _entered = device.enter("event")?;
        // SAFETY: a valid output.
        unsafe { cuda!(device.api, cuEventCreate(&mut handle, flags as u32)) }
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

    /// Fails for an event without timing.
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
        Ok(())
    }
}

impl Event for CudaEvent {
    fn query(&self) -> Result<bool> {
        if !self.is_recorded() {
            return Ok(true);
        }
        let _entered = self.device.enter("event_query")?;
        // SAFETY: a live event.
        match unsafe { (self.device.api.cuEventQuery)(self.handle) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(self
                .device
                .located(failed(self.device.api, "cuEventQuery", code))),
        }
    }

    fn sync(&self) -> Result<()> {
        if !self.is_recorded() {
            return Ok(());
        }
        let _entered = self.device.enter("event_sync")?;
        // SAFETY: a live event.
        unsafe { cuda!(self.device.api, cuEventSynchronize(self.handle)) }
            .map_err(|error| self.device.located(error))
    }

    /// Milliseconds to `end`, with CUDA's resolution of about half a microsecond.
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
        let mut elapsed = 0.0_f32;
        // SAFETY: a valid output and live events.
        let code =
            unsafe { (self.device.api.cuEventElapsedTime)(&mut elapsed, self.handle, end.handle) };
        match code {
            SUCCESS => Ok(f64::from(elapsed)),
            NOT_READY => Err(
                Error::invalid_argument("event_elapsed", "an event has not finished")
                    .with_hint("synchronize with both events first"),
            ),
            code => {
                let error = failed(self.device.api, "cuEventElapsedTime", code);
                Err(self.device.located(error))
            }
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        self.device.discard(Discarded::Event(self.handle));
    }
}
