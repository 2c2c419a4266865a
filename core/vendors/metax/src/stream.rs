//! Streams of MACA's runtime.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::{Capture, HostFn, Place};
use flagos_vendor_kit::driver::{DriverDevice as _, DriverEvent, DriverStream, DriverStreams};
use flagos_vendor_kit::{call, call_newer};

use super::api::{Api, Handle, NOT_READY, STREAM_NON_BLOCKING, SUCCESS, kind};
use super::device::Device;
use super::error::failed;
use super::peer;

/// `mcStreamCaptureStatus`: the stream is not captured.
const CAPTURE_NONE: c_int = 0;
/// `mcStreamCaptureStatus`: the capture goes on; any other status is that of an invalid capture.
const CAPTURE_ACTIVE: c_int = 1;

/// The nearest priority that the current device has: 0 where the runtime does not tell its range.
fn within_range(api: &Api, priority: i32) -> Result<i32> {
    if api.mcDeviceGetStreamPriorityRange.is_none() {
        return Ok(0);
    }
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: valid outputs.
    unsafe {
        call_newer!(
            api,
            mcDeviceGetStreamPriorityRange(&mut least, &mut greatest)
        )
    }?;
    // A more urgent priority is a lower number, so that `greatest` is the lowest number.
    Ok(priority.clamp(greatest.min(least), least.max(greatest)))
}

impl Device {
    /// The kind of a copy. What this vendor has not allocated the runtime looks up.
    fn kind_of_copy(&self, dst: *const u8, src: *const u8) -> i32 {
        let known = |address| Some(self.allocations.find(address)?.place);
        let (to, from) = (known(dst), known(src));
        if self.peers.has_new() {
            let devices = [to, from].into_iter().flatten().filter_map(Place::device);
            for other in devices.filter(|other| *other != self.index) {
                peer::arrange(self, other);
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

impl DriverStreams for Device {
    fn new_stream(&self, priority: i32) -> Result<Handle> {
        let api = self.api;
        let mut stream = null_mut();
        // SAFETY: valid outputs.
        unsafe {
            match priority {
                0 => call!(
                    api,
                    mcStreamCreateWithFlags(&mut stream, STREAM_NON_BLOCKING)
                ),
                _ => within_range(api, priority).and_then(|priority| {
                    call!(
                        api,
                        mcStreamCreateWithPriority(&mut stream, STREAM_NON_BLOCKING, priority)
                    )
                }),
            }
        }?;
        Ok(stream)
    }

    fn check_stream(&self, stream: &DriverStream<Self>) -> Result<()> {
        if self.api.mcStreamGetDevice.is_none() || stream.handle().is_null() {
            return Ok(());
        }
        let mut owner = -1;
        // SAFETY: a valid output, and a live stream.
        unsafe { call_newer!(self.api, mcStreamGetDevice(stream.handle(), &mut owner)) }
            .map_err(|error| self.located(error))?;
        if owner == self.raw() {
            return Ok(());
        }
        let message = format!("the stream belongs to device {owner}");
        Err(self
            .located(Error::invalid_argument("external_stream", message))
            .with_hint("pass the device that the stream was made on"))
    }

    fn is_finished(&self, stream: &DriverStream<Self>) -> Result<bool> {
        // SAFETY: a live stream.
        match unsafe { (self.api.mcStreamQuery)(stream.handle()) } {
            SUCCESS => Ok(true),
            NOT_READY => {
                self.api.forget_failure();
                Ok(false)
            }
            code => Err(failed(self.api, "mcStreamQuery", code)),
        }
    }

    fn wait_for_all(&self) -> Result<()> {
        // SAFETY: the device is current.
        unsafe { call!(self.api, mcDeviceSynchronize()) }
    }

    fn wait_for_stream(&self, stream: &DriverStream<Self>) -> Result<()> {
        // SAFETY: a live stream.
        unsafe { call!(self.api, mcStreamSynchronize(stream.handle())) }
    }

    /// The runtime may wait for a copy that has ordinary memory on a side, and does where both are the host's.
    unsafe fn queue_copy(
        &self,
        stream: &DriverStream<Self>,
        dst: *mut u8,
        src: *const u8,
        nbytes: usize,
    ) -> Result<()> {
        let kind = self.kind_of_copy(dst, src);
        // SAFETY: the caller's promise.
        unsafe {
            call!(
                self.api,
                mcMemcpyAsync(dst.cast(), src.cast(), nbytes, kind, stream.handle())
            )
        }
    }

    unsafe fn queue_call(
        &self,
        stream: &DriverStream<Self>,
        function: HostFn,
        context: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            call!(
                self.api,
                mcLaunchHostFunc(stream.handle(), function, context)
            )
        }
    }

    fn queue_record(&self, stream: &DriverStream<Self>, event: &DriverEvent<Self>) -> Result<()> {
        // SAFETY: a live event and a live stream of one device.
        unsafe { call!(self.api, mcEventRecord(event.handle(), stream.handle())) }
    }

    fn queue_wait(&self, stream: &DriverStream<Self>, event: &DriverEvent<Self>) -> Result<()> {
        // SAFETY: a live event, of any device, and a live stream.
        unsafe {
            call!(
                self.api,
                mcStreamWaitEvent(stream.handle(), event.handle(), 0)
            )
        }
    }

    /// Whether another library, such as torch, captures the stream. Captures of this vendor have no numbers, so that each
    /// has that of the stream that was asked.
    fn capture(&self, stream: &DriverStream<Self>) -> Result<Option<Capture>> {
        let _entered = self.enter("capture")?;
        let mut status = CAPTURE_NONE;
        // SAFETY: a live stream, and a valid output.
        unsafe { call_newer!(self.api, mcStreamIsCapturing(stream.handle(), &mut status)) }
            .map_err(|error| self.located(error))?;
        Ok((status != CAPTURE_NONE).then_some(Capture {
            id: (stream.handle() as u64).max(1),
            valid: status == CAPTURE_ACTIVE,
        }))
    }
}
