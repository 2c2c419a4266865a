//! Streams of CUDA.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream, CUstream_flags};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::{Event, HostFn, Stream};

use super::api::SUCCESS;
use super::device::{Device, Discarded};
use super::error::{cuda, failed};
use super::event::{CudaEvent, NOT_READY};
use super::peer;
use flagos_vendor_kit::stream_work::{self, Call};

/// A stream of a device.
pub(super) struct CudaStream {
    device: Arc<Device>,
    handle: CUstream,
    /// Whether dropping the stream destroys the handle.
    owned: bool,
}

// SAFETY: CUDA's handles may be used from every thread.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// The legacy default stream, which is also torch's: the null handle.
    pub(super) fn default(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            handle: std::ptr::null_mut(),
            owned: false,
        }
    }

    /// A new stream, which does not wait for the default stream.
    pub(super) fn new(device: &Arc<Device>, priority: i32) -> Result<Self> {
        let api = device.api;
        let (mut least, mut greatest) = (0, 0);
        let mut handle = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let _entered = device.enter("stream")?;
        // SAFETY: valid outputs.
        unsafe {
            cuda!(api, cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
            // A more urgent priority is a lower number, so that `greatest` is the lowest number.
            let priority = priority.clamp(greatest.min(least), least.max(greatest));
            cuda!(
                api,
                cuStreamCreateWithPriority(&mut handle, flags, priority)
            )
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
    /// `handle` is a live stream (or null, the default stream) and outlives the returned stream.
    pub(super) unsafe fn external(device: &Arc<Device>, handle: *mut c_void) -> Result<Self> {
        let handle: CUstream = handle.cast();
        let entered = device.enter("external_stream")?;
        let mut context = std::ptr::null_mut();
        // SAFETY: a valid output, and a live stream by the caller's promise.
        unsafe { cuda!(device.api, cuStreamGetCtx(handle, &mut context)) }
            .map_err(|error| device.located(error))?;
        if context != device.context()? {
            let message = "the stream belongs to another device, or not to its primary context";
            return Err(device
                .located(Error::invalid_argument("external_stream", message))
                .with_hint("pass the device that the stream was made on"));
        }
        drop(entered);
        Ok(Self {
            device: Arc::clone(device),
            handle,
            owned: false,
        })
    }

    /// Whether everything queued has finished.
    fn poll(&self) -> Result<bool> {
        let _entered = self.device.enter("stream_query")?;
        // SAFETY: a live stream.
        match unsafe { (self.device.api.cuStreamQuery)(self.handle) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(self
                .device
                .located(failed(self.device.api, "cuStreamQuery", code))),
        }
    }
}

impl Stream for CudaStream {
    fn device(&self) -> usize {
        self.device.index
    }

    fn query(&self) -> Result<bool> {
        self.poll()
    }

    /// Whether the stream is idle: also after a failure, when nothing runs any more. False in work running on a
    /// stream, where CUDA cannot be asked.
    fn is_idle(&self) -> bool {
        !stream_work::is_current() && self.poll().unwrap_or(true)
    }

    fn sync(&self) -> Result<()> {
        let _entered = self.device.enter("stream_sync")?;
        // SAFETY: a live stream.
        unsafe { cuda!(self.device.api, cuStreamSynchronize(self.handle)) }
            .map_err(|error| self.device.located(error))
    }

    /// Queues a copy. CUDA infers the kinds of memory from the addresses. It waits for a copy from host memory
    /// to host memory, and may wait when one side is ordinary memory.
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        if nbytes == 0 {
            return Ok(());
        }
        let _entered = self.device.enter("copy")?;
        let (to, from) = (dst as CUdeviceptr, src as CUdeviceptr);
        if self.device.has_new_peers() {
            peer::arrange(&self.device, [to, from]);
        }
        // SAFETY: the caller's promise.
        unsafe {
            cuda!(
                self.device.api,
                cuMemcpyAsync(to, from, nbytes, self.handle)
            )
        }
        .map_err(|error| self.device.located(error).with_context("bytes", nbytes))
    }

    unsafe fn launch(&self, function: HostFn, context: *mut c_void) -> Result<()> {
        let _entered = self.device.enter("launch")?;
        let call = Box::into_raw(Box::new(Call { function, context }));
        // SAFETY: `run` takes the box back; the caller lets the function be called.
        let queued = unsafe {
            cuda!(
                self.device.api,
                cuLaunchHostFunc(self.handle, Some(stream_work::run), call.cast())
            )
        };
        queued.map_err(|error| {
            // SAFETY: the call will not be made, so the box is still ours.
            drop(unsafe { Box::from_raw(call) });
            self.device.located(error)
        })
    }

    fn record(&self, event: &dyn Event) -> Result<()> {
        let event = CudaEvent::from_dyn(event)?;
        if event.device.index != self.device.index {
            let message = format!(
                "an event of device {} was recorded on a stream of device {}",
                event.device.index, self.device.index
            );
            return Err(Error::invalid_argument("event_record", message)
                .with_hint("make the event for the stream's device"));
        }
        let _entered = self.device.enter("event_record")?;
        // SAFETY: a live event and a live stream of one context.
        unsafe { cuda!(self.device.api, cuEventRecord(event.handle, self.handle)) }
            .map_err(|error| self.device.located(error))?;
        event.set_recorded();
        Ok(())
    }

    fn wait(&self, event: &dyn Event) -> Result<()> {
        let event = CudaEvent::from_dyn(event)?;
        if !event.is_recorded() {
            return Ok(());
        }
        let _entered = self.device.enter("event_wait")?;
        // SAFETY: a live event, of any device, and a live stream.
        unsafe {
            cuda!(
                self.device.api,
                cuStreamWaitEvent(self.handle, event.handle, 0)
            )
        }
        .map_err(|error| self.device.located(error))
    }

    fn native_handle(&self) -> Option<*mut c_void> {
        Some(self.handle.cast())
    }
}

impl Drop for CudaStream {
    /// Destroys the stream. CUDA still runs all queued work.
    fn drop(&mut self) {
        if self.owned {
            self.device.discard(Discarded::Stream(self.handle));
        }
    }
}
