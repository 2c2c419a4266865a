//! Streams of MACA's runtime.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Place;
use flagos_core::runtime::{Capture, Event, HostFn, Stream};
use flagos_vendor_kit::stream_work::{self, Call};

use super::api::{Api, Handle, NOT_READY, STREAM_NON_BLOCKING, SUCCESS, kind};
use super::device::{Device, Discarded};
use super::error::{failed, mc, newer};
use super::event::MetaxEvent;
use super::peer;

/// `mcStreamCaptureStatus`: the stream is not captured.
const CAPTURE_NONE: c_int = 0;
/// `mcStreamCaptureStatus`: the capture goes on; any other status is that of an invalid capture.
const CAPTURE_ACTIVE: c_int = 1;

/// A stream of a device.
pub(super) struct MetaxStream {
    device: Arc<Device>,
    handle: Handle,
    /// Whether dropping the stream destroys the handle.
    owned: bool,
}

// SAFETY: the runtime's handles may be used from every thread.
unsafe impl Send for MetaxStream {}
// SAFETY: as above.
unsafe impl Sync for MetaxStream {}

impl MetaxStream {
    /// The default stream, which is also torch's: the null handle.
    pub(super) fn default(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            handle: null_mut(),
            owned: false,
        }
    }

    /// A new stream, which does not wait for the default stream.
    pub(super) fn new(device: &Arc<Device>, priority: i32) -> Result<Self> {
        let api = device.api;
        let mut handle = null_mut();
        let _entered = device.enter("stream")?;
        // SAFETY: valid outputs.
        unsafe {
            match priority {
                0 => mc!(
                    api,
                    mcStreamCreateWithFlags(&mut handle, STREAM_NON_BLOCKING)
                ),
                _ => within_range(api, priority).and_then(|priority| {
                    mc!(
                        api,
                        mcStreamCreateWithPriority(&mut handle, STREAM_NON_BLOCKING, priority)
                    )
                }),
            }
        }
        .map_err(|error| device.located(error))?;
        Ok(Self {
            device: Arc::clone(device),
            handle,
            owned: true,
        })
    }

    /// A stream around a handle that the caller created and destroys.
    ///
    /// # Safety
    /// `handle` is a live stream of the device (or null, the default stream) and outlives the returned stream.
    pub(super) unsafe fn external(device: &Arc<Device>, handle: *mut c_void) -> Result<Self> {
        let _entered = device.enter("external_stream")?;
        if device.api.mcStreamGetDevice.is_some() && !handle.is_null() {
            let mut owner = -1;
            // SAFETY: a valid output, and a live stream by the caller's promise.
            unsafe { newer!(device.api, mcStreamGetDevice(handle, &mut owner)) }
                .map_err(|error| device.located(error))?;
            if owner != device.raw() {
                let message = format!("the stream belongs to device {owner}");
                return Err(device
                    .located(Error::invalid_argument("external_stream", message))
                    .with_hint("pass the device that the stream was made on"));
            }
        }
        Ok(Self {
            device: Arc::clone(device),
            handle,
            owned: false,
        })
    }

    /// Whether everything queued has finished.
    fn poll(&self) -> Result<bool> {
        let _entered = self.device.enter("stream_query")?;
        let api = self.device.api;
        // SAFETY: a live stream.
        match unsafe { (api.mcStreamQuery)(self.handle) } {
            SUCCESS => Ok(true),
            NOT_READY => {
                api.forget_failure();
                Ok(false)
            }
            code => Err(self.device.located(failed(api, "mcStreamQuery", code))),
        }
    }

    /// The kind of a copy. What this vendor has not allocated the runtime looks up.
    fn kind_of_copy(&self, dst: *const u8, src: *const u8) -> i32 {
        let known = |address| Some(self.device.allocations.find(address)?.place);
        let (to, from) = (known(dst), known(src));
        if self.device.has_new_peers() {
            let devices = [to, from].into_iter().flatten().filter_map(Place::device);
            for other in devices.filter(|other| *other != self.device.index) {
                peer::arrange(&self.device, other);
            }
        }
        match (to, from) {
            (Some(Place::Device(_)), Some(Place::Device(_))) => kind::DEVICE_TO_DEVICE,
            (Some(Place::Device(_)), Some(Place::Pinned)) => kind::HOST_TO_DEVICE,
            (Some(Place::Pinned), Some(Place::Device(_))) => kind::DEVICE_TO_HOST,
            _ => kind::DEFAULT,
        }
    }
}

/// The nearest priority that the current device has: 0 where the runtime does not tell its range.
fn within_range(api: &Api, priority: i32) -> Result<i32> {
    if api.mcDeviceGetStreamPriorityRange.is_none() {
        return Ok(0);
    }
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: valid outputs.
    unsafe {
        newer!(
            api,
            mcDeviceGetStreamPriorityRange(&mut least, &mut greatest)
        )
    }?;
    // A more urgent priority is a lower number, so that `greatest` is the lowest number.
    Ok(priority.clamp(greatest.min(least), least.max(greatest)))
}

impl Stream for MetaxStream {
    fn device(&self) -> usize {
        self.device.index
    }

    fn query(&self) -> Result<bool> {
        self.poll()
    }

    /// Whether the stream is idle: also after a failure, when nothing runs any more. False in work running on a
    /// stream, where the runtime cannot be asked.
    fn is_idle(&self) -> bool {
        !stream_work::is_current() && self.poll().unwrap_or(true)
    }

    fn sync(&self) -> Result<()> {
        let _entered = self.device.enter("stream_sync")?;
        // SAFETY: a live stream.
        unsafe { mc!(self.device.api, mcStreamSynchronize(self.handle)) }
            .map_err(|error| self.device.located(error))
    }

    /// Queues a copy. The runtime may wait for a copy that has ordinary memory on a side, and does where both are the
    /// host's.
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        if nbytes == 0 {
            return Ok(());
        }
        let _entered = self.device.enter("copy")?;
        let kind = self.kind_of_copy(dst, src);
        // SAFETY: the caller's promise.
        unsafe {
            mc!(
                self.device.api,
                mcMemcpyAsync(dst.cast(), src.cast(), nbytes, kind, self.handle)
            )
        }
        .map_err(|error| self.device.located(error).with_context("bytes", nbytes))
    }

    unsafe fn launch(&self, function: HostFn, context: *mut c_void) -> Result<()> {
        let _entered = self.device.enter("launch")?;
        let call = Box::into_raw(Box::new(Call { function, context }));
        // SAFETY: `run` takes the box back; the caller lets the function be called.
        let queued = unsafe {
            mc!(
                self.device.api,
                mcLaunchHostFunc(self.handle, stream_work::run, call.cast())
            )
        };
        queued.map_err(|error| {
            // SAFETY: the call will not be made, so the box is still ours.
            drop(unsafe { Box::from_raw(call) });
            self.device.located(error)
        })
    }

    fn record(&self, event: &dyn Event) -> Result<()> {
        let event = MetaxEvent::from_dyn(event)?;
        if event.device.index != self.device.index {
            let message = format!(
                "an event of device {} was recorded on a stream of device {}",
                event.device.index, self.device.index
            );
            return Err(Error::invalid_argument("event_record", message)
                .with_hint("make the event for the stream's device"));
        }
        let _entered = self.device.enter("event_record")?;
        // SAFETY: a live event and a live stream of one device.
        unsafe { mc!(self.device.api, mcEventRecord(event.handle, self.handle)) }
            .map_err(|error| self.device.located(error))?;
        event.set_recorded();
        Ok(())
    }

    fn wait(&self, event: &dyn Event) -> Result<()> {
        let event = MetaxEvent::from_dyn(event)?;
        if !event.is_recorded() {
            return Ok(());
        }
        let _entered = self.device.enter("event_wait")?;
        // SAFETY: a live event, of any device, and a live stream.
        unsafe {
            mc!(
                self.device.api,
                mcStreamWaitEvent(self.handle, event.handle, 0)
            )
        }
        .map_err(|error| self.device.located(error))
    }

    /// Whether another library, such as torch, captures the stream. Captures of this vendor have no numbers, so that each
    /// has that of the stream that was asked.
    fn capture(&self) -> Result<Option<Capture>> {
        let _entered = self.device.enter("capture")?;
        let mut status = CAPTURE_NONE;
        // SAFETY: a live stream, and a valid output.
        unsafe {
            newer!(
                self.device.api,
                mcStreamIsCapturing(self.handle, &mut status)
            )
        }
        .map_err(|error| self.device.located(error))?;
        Ok((status != CAPTURE_NONE).then_some(Capture {
            id: (self.handle as u64).max(1),
            valid: status == CAPTURE_ACTIVE,
        }))
    }

    fn native_handle(&self) -> Option<*mut c_void> {
        Some(self.handle)
    }
}

impl Drop for MetaxStream {
    /// Destroys the stream. The runtime still runs all queued work.
    fn drop(&mut self) {
        if self.owned {
            self.device.discard(Discarded::Stream(self.handle));
        }
    }
}
