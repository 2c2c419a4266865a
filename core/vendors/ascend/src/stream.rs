//! Streams of the ACL runtime.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use flagos_core::error::{Error, ErrorKind, Result};
use flagos_core::runtime::{Capture, CaptureMode, Event, Graph, HostFn, LibraryHandle, Stream};
use flagos_vendor_kit::driver::{DriverDevice as _, DriverEvent, Entered};
use flagos_vendor_kit::{call, stream_work};

use super::api::kind::{DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE};
use super::api::{Api, CALLBACK_BLOCK, Handle, STREAM_COMPLETE, STREAM_FLAGS, SUCCESS};
use super::captures::{self, refused};
use super::device::{Device, Discarded};
use super::error::{STREAM_CONTEXT, failed};
use super::graph::{self, AscendGraph};
use super::memory::Place;
use super::peer;

/// Why nobody can wait for a captured stream.
const UNASKED: &str = "runs only when it is replayed, so nobody can wait for it";
/// Why a captured stream takes no copy of ordinary memory.
const NO_COPIES: &str = "takes no copy of ordinary memory: pin the memory, or copy before";
/// Why a captured stream takes no function of the host.
const NO_FUNCTIONS: &str = "takes no function of the host, whose context serves one call alone";

/// Why a captured stream takes no graph.
const NO_GRAPHS: &str = "cannot contain another graph";

/// A stream of a device.
pub(super) struct AscendStream {
    device: Arc<Device>,
    handle: Handle,
    /// Whether dropping the stream destroys the handle.
    owned: bool,
    /// The reporter's thread, once the stream is subscribed to it.
    subscribed: OnceLock<u64>,
    subscribing: Mutex<()>,
}

// SAFETY: the runtime's handles may be used from every thread.
unsafe impl Send for AscendStream {}
// SAFETY: as above.
unsafe impl Sync for AscendStream {}

/// The runtime's priority for one of ours, of which 0 is normal and less is more urgent. The runtime's most urgent one is
/// `greatest`, 0, and `least` is the normal one.
fn priority_of(priority: i32, least: i32, greatest: i32) -> u32 {
    let (most_urgent, normal) = (greatest.min(least), greatest.max(least));
    let priority = normal.saturating_add(priority.min(0));
    u32::try_from(priority.max(most_urgent)).unwrap_or(0)
}

/// The least and the greatest priority, of a runtime that tells them. The context is current.
fn priorities(api: &Api) -> Option<(i32, i32)> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: valid outputs.
    let code = unsafe { (api.aclrtDeviceGetStreamPriorityRange?)(&mut least, &mut greatest) };
    if code != SUCCESS {
        drop(api.recent_error());
    }
    (code == SUCCESS).then_some((least, greatest))
}

impl AscendStream {
    /// A new stream. None is ever the runtime's own default stream: the null handle is a stream of whichever context is
    /// current, and cannot be captured.
    pub(super) fn new(device: &Arc<Device>, priority: i32) -> Result<Self> {
        let _entered = device.enter("stream")?;
        let api = device.api;
        // Before the range can be asked for, the parameter is reserved: 0.
        let priority = priorities(api).map_or(0, |(least, greatest)| {
            priority_of(priority, least, greatest)
        });
        let mut handle = std::ptr::null_mut();
        // SAFETY: a valid output.
        unsafe {
            call!(
                api,
                aclrtCreateStreamWithConfig(&mut handle, priority, STREAM_FLAGS)
            )
        }
        .map_err(|error| device.located(error))?;
        Ok(Self::over(device, handle, true))
    }

    /// A stream around a handle that the caller created and destroys.
    ///
    /// # Safety
    /// `handle` is a live stream and outlives the returned stream.
    pub(super) unsafe fn external(device: &Arc<Device>, handle: Handle) -> Result<Self> {
        let _entered = device.enter("external_stream")?;
        let mut status = STREAM_COMPLETE;
        // SAFETY: a live stream by the caller's promise, and a valid output.
        let code = unsafe { (device.api.aclrtStreamQuery)(handle, &mut status) };
        if code == STREAM_CONTEXT {
            drop(device.api.recent_error());
            let message = "the stream belongs to another device, or not to its default context";
            return Err(device
                .located(Error::invalid_argument("external_stream", message))
                .with_hint("pass the device that the stream was made on"));
        }
        Ok(Self::over(device, handle, false))
    }

    /// The stream's handle in the runtime.
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// The number of the stream's device.
    pub(super) fn device_index(&self) -> usize {
        self.device.index
    }

    /// Makes the device's context current on this thread: see [`Device::enter`].
    pub(super) fn enter(&self, operation: &'static str) -> Result<Entered<'_, Device>> {
        self.device.enter(operation)
    }

    /// Adds the device to an error: see [`Device::located`].
    pub(super) fn located(&self, error: Error) -> Error {
        self.device.located(error)
    }

    fn over(device: &Arc<Device>, handle: Handle, owned: bool) -> Self {
        Self {
            device: Arc::clone(device),
            handle,
            owned,
            subscribed: OnceLock::new(),
            subscribing: Mutex::new(()),
        }
    }

    /// Whether the stream is being captured. The context is current.
    fn is_captured(&self) -> Result<bool> {
        Ok(self.device.is_capturing() && graph::capture(&self.device, self.handle)?.is_some())
    }

    /// Fails while the stream is being captured, with what it cannot do then. The context is current.
    fn refuse_captured(&self, operation: &'static str, cannot: &str) -> Result<()> {
        if !self.is_captured()? {
            return Ok(());
        }
        let message = format!("the stream is being captured into a graph, which {cannot}");
        Err(self.device.located(refused(operation, &message)))
    }

    /// Whether everything queued has finished.
    fn poll(&self) -> Result<bool> {
        let _entered = self.device.enter("stream_query")?;
        self.refuse_captured("stream_query", UNASKED)?;
        let mut status = STREAM_COMPLETE;
        // SAFETY: a live stream, and a valid output.
        match unsafe { (self.device.api.aclrtStreamQuery)(self.handle, &mut status) } {
            SUCCESS => Ok(status == STREAM_COMPLETE),
            code => Err(failed(self.device.api, "aclrtStreamQuery", code)),
        }
    }

    /// Waits for everything queued. The context is current.
    fn wait_here(&self) -> Result<()> {
        // SAFETY: a live stream.
        unsafe { call!(self.device.api, aclrtSynchronizeStream(self.handle)) }
    }

    /// Queues a copy between addresses of which one is device memory, and the other is that or pinned.
    unsafe fn queue_copy(
        &self,
        dst: *mut u8,
        src: *const u8,
        nbytes: usize,
        kind: i32,
    ) -> Result<()> {
        let (dst, src) = (dst.cast(), src.cast());
        // SAFETY: the caller's promise. The size of the destination is at least that of the copy.
        unsafe {
            call!(
                self.device.api,
                aclrtMemcpyAsync(dst, nbytes, src, nbytes, kind, self.handle)
            )
        }
    }

    /// Copies between device memory and ordinary memory, after everything queued, and waits for it. The device cannot
    /// read ordinary memory later, when the copy's turn comes.
    unsafe fn copy_now(
        &self,
        dst: *mut u8,
        src: *const u8,
        nbytes: usize,
        kind: i32,
    ) -> Result<()> {
        self.refuse_captured("copy", NO_COPIES)?;
        self.wait_here()?;
        let (dst, src) = (dst.cast(), src.cast());
        let _undisturbing = captures::undisturbing(self.device.api);
        // SAFETY: the caller's promise.
        unsafe { call!(self.device.api, aclrtMemcpy(dst, nbytes, src, nbytes, kind)) }
    }

    /// Queues or makes a copy. The context is current.
    unsafe fn copy_between(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        let device = &*self.device;
        let to = device.memory.place(device.api, dst)?;
        let from = device.memory.place(device.api, src)?;
        let reached = [to, from].iter().all(|place| {
            place
                .device()
                .is_none_or(|other| peer::reaches(device, other))
        });
        // SAFETY: the caller's promise.
        unsafe {
            match (to, from) {
                (Place::Device(to), Place::Device(from)) if !reached => {
                    self.refuse_captured("copy", NO_COPIES)?;
                    self.wait_here()?;
                    let unknown = || {
                        Error::invalid_argument(
                            "copy",
                            "memory of a device that flagos does not see",
                        )
                    };
                    let to = device.sibling(to).ok_or_else(unknown)?;
                    let from = device.sibling(from).ok_or_else(unknown)?;
                    peer::through_the_host(&to, dst, &from, src, nbytes)
                }
                (Place::Device(_), Place::Device(_)) => {
                    self.queue_copy(dst, src, nbytes, DEVICE_TO_DEVICE)
                }
                (Place::Device(_), Place::Pinned) => {
                    self.queue_copy(dst, src, nbytes, HOST_TO_DEVICE)
                }
                (Place::Pinned, Place::Device(_)) => {
                    self.queue_copy(dst, src, nbytes, DEVICE_TO_HOST)
                }
                (Place::Device(_), Place::Ordinary) => {
                    self.copy_now(dst, src, nbytes, HOST_TO_DEVICE)
                }
                (Place::Ordinary, Place::Device(_)) => {
                    self.copy_now(dst, src, nbytes, DEVICE_TO_HOST)
                }
                // The runtime copies nothing from host to host.
                (Place::Pinned | Place::Ordinary, Place::Pinned | Place::Ordinary) => {
                    self.refuse_captured("copy", NO_COPIES)?;
                    self.wait_here()?;
                    std::ptr::copy(src, dst, nbytes);
                    Ok(())
                }
            }
        }
    }

    /// The reporter's thread, to which the stream is subscribed now. The context is current.
    fn subscribe(&self, thread: u64) -> Result<()> {
        let _one_at_a_time = self.subscribing.lock();
        if self.subscribed.get().is_none() {
            // SAFETY: a live stream, and a thread that processes reports.
            unsafe { call!(self.device.api, aclrtSubscribeReport(thread, self.handle)) }?;
            let _ = self.subscribed.set(thread);
        }
        Ok(())
    }
}

impl Stream for AscendStream {
    fn device(&self) -> usize {
        self.device.index
    }

    fn query(&self) -> Result<bool> {
        let idle = self.poll();
        let finished = *idle.as_ref().unwrap_or(&true);
        if finished {
            self.device.reported(idle.map(drop))?;
        }
        Ok(finished)
    }

    /// Whether the stream is idle: also after a failure, when nothing runs any more. False in work running on a
    /// stream, where the runtime cannot be asked, and while the stream is captured.
    fn is_idle(&self) -> bool {
        let idle = |error: &Error| error.kind() != ErrorKind::Unsupported;
        !stream_work::is_current() && self.poll().unwrap_or_else(|error| idle(&error))
    }

    fn sync(&self) -> Result<()> {
        let _entered = self.device.enter("stream_sync")?;
        self.refuse_captured("stream_sync", UNASKED)?;
        self.device.reported(self.wait_here())
    }

    /// Queues a copy. Waits for one of ordinary memory, and for one from host to host.
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        if nbytes == 0 {
            return Ok(());
        }
        let _entered = self.device.enter("copy")?;
        // SAFETY: the caller's promise.
        unsafe { self.copy_between(dst, src, nbytes) }
            .map_err(|error| self.device.located(error).with_context("bytes", nbytes))
    }

    unsafe fn launch(&self, function: HostFn, context: *mut c_void) -> Result<()> {
        let _entered = self.device.enter("launch")?;
        self.refuse_captured("launch", NO_FUNCTIONS)?;
        let api = self.device.api;
        let queued = if let Some(launch) = api.aclrtLaunchHostFunc {
            stream_work::queue(function, context, |run, call| {
                // SAFETY: a live stream; the caller lets the function be called.
                let code = unsafe { launch(self.handle, run, call) };
                api.check("aclrtLaunchHostFunc", code)
            })
        } else {
            let reporter = self.device.reporter()?;
            self.subscribe(reporter.thread)
                .map_err(|error| self.device.located(error))?;
            reporter.queue(function, context, |run, call| {
                // SAFETY: as above.
                unsafe {
                    call!(
                        api,
                        aclrtLaunchCallback(run, call, CALLBACK_BLOCK, self.handle)
                    )
                }
            })
        };
        queued.map_err(|error| self.device.located(error))
    }

    fn record(&self, event: &dyn Event) -> Result<()> {
        let event = DriverEvent::to_record(event, &*self.device)?;
        let _entered = self.device.enter("event_record")?;
        let captured = self.is_captured()?;
        // SAFETY: a live event and a live stream of one context.
        unsafe {
            call!(
                self.device.api,
                aclrtRecordEvent(event.handle(), self.handle)
            )
        }
        .map_err(|error| self.device.located(error))?;
        event.set_recorded(captured);
        Ok(())
    }

    /// Queues a wait. An event of another device belongs to another context, so the calling thread waits for it.
    fn wait(&self, event: &dyn Event) -> Result<()> {
        let event = DriverEvent::<Device>::from_dyn(event)?;
        if !event.is_recorded() {
            return Ok(());
        }
        if event.device() != self.device.index {
            return Event::sync(event);
        }
        let _entered = self.device.enter("event_wait")?;
        // SAFETY: a live event and a live stream of one context.
        unsafe {
            call!(
                self.device.api,
                aclrtStreamWaitEvent(self.handle, event.handle())
            )
        }
        .map_err(|error| self.device.located(error))
    }

    /// This stream itself, for the kernels of this library, which find it by the handle that a host has.
    fn library_handle(&self) -> Option<LibraryHandle> {
        let stream = NonNull::from(self).cast();
        Some(LibraryHandle {
            instance: stream,
            stream,
        })
    }

    fn begin_capture(&self, mode: CaptureMode) -> Result<()> {
        let _entered = self.device.enter("begin_capture")?;
        if self.is_captured()? {
            let message = "the stream is being captured already";
            return Err(self
                .device
                .located(Error::invalid_argument("begin_capture", message)));
        }
        graph::begin(&self.device, self.handle, mode)
    }

    fn capture(&self) -> Result<Option<Capture>> {
        if !self.device.is_capturing() {
            return Ok(None);
        }
        let _entered = self.device.enter("capture")?;
        graph::capture(&self.device, self.handle)
    }

    fn end_capture(&self) -> Result<Arc<dyn Graph>> {
        let _entered = self.device.enter("end_capture")?;
        let graph = graph::end(&self.device, self.handle)?;
        Ok(Arc::new(graph))
    }

    unsafe fn replay(&self, graph: &dyn Graph) -> Result<()> {
        let graph = AscendGraph::from_dyn(graph, &self.device)?;
        let _entered = self.device.enter("replay")?;
        self.refuse_captured("replay", NO_GRAPHS)?;
        // SAFETY: a live stream of the graph's device, and the caller's promise.
        unsafe { graph.run(self.handle) }
    }

    fn native_handle(&self) -> Option<*mut c_void> {
        Some(self.handle)
    }
}

impl Drop for AscendStream {
    /// Destroys the stream when its work has run.
    fn drop(&mut self) {
        // A capture that nobody can end any more would keep everybody from waiting for the device.
        if matches!(self.capture(), Ok(Some(_))) {
            drop(self.end_capture());
        }
        let subscribed = self.subscribed.get().copied();
        if self.owned || subscribed.is_some() {
            self.device
                .discard(Discarded::Stream(self.handle, subscribed, self.owned));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::priority_of;

    #[test]
    fn normal_is_least_urgent_and_priorities_are_clamped() {
        // The runtime's 0 is the most urgent, 7 the least.
        let of = |priority| priority_of(priority, 7, 0);
        assert_eq!([of(0), of(5), of(-1), of(-7), of(-100)], [7, 7, 6, 0, 0]);
        assert_eq!(priority_of(-1, 0, 0), 0, "a chip with one priority");
        assert_eq!(priority_of(i32::MIN, i32::MAX, 0), 0);
    }
}
