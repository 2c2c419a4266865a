//! Streams of a library.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::runtime::{Capture, CaptureMode, Event, Graph, HostFn, LibraryHandle, Posted, Stream};

use super::call::{call, give_back};
use super::event::LibraryEvent;
use super::graph::LibraryGraph;
use super::instance::Instance;
use super::queue::{self, Cut, Queue};
use super::types::*;

/// Where a stream is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// `stream_default`: the library keeps it.
    Default,
    /// `stream_create`: no other stream is this one.
    New,
    /// `stream_external`, which may give a handle for one of the vendor's own again.
    External,
}

/// A stream of a library.
pub(super) struct LibraryStream {
    instance: Arc<Instance>,
    handle: *mut FlagosVendorStream,
    device: usize,
    origin: Origin,
    /// Made when the first part is posted; none where it could not be.
    queue: OnceLock<Option<Queue>>,
    /// Whether others know the stream's handle in the vendor's own library, and may queue work on it at any time.
    lent: AtomicBool,
    /// Whether a capture began on the stream, and has not ended.
    captured: AtomicBool,
}

// SAFETY: the library's handles may be used from every thread.
unsafe impl Send for LibraryStream {}
// SAFETY: as above.
unsafe impl Sync for LibraryStream {}

impl LibraryStream {
    /// The default stream.
    pub(super) fn default(instance: &Arc<Instance>, device: usize) -> Result<Self> {
        let index = instance.device(device)?;
        // SAFETY: a device of the instance; `make` gives a valid output.
        unsafe {
            Self::make(
                instance,
                device,
                Origin::Default,
                "stream_default",
                |table, out| Some((table.stream_default?)(instance.context, index, out)),
            )
        }
    }

    /// A new stream.
    pub(super) fn new(instance: &Arc<Instance>, device: usize, priority: i32) -> Result<Self> {
        let index = instance.device(device)?;
        // SAFETY: as above.
        unsafe {
            Self::make(
                instance,
                device,
                Origin::New,
                "stream_create",
                |table, out| {
                    Some((table.stream_create?)(
                        instance.context,
                        index,
                        priority,
                        out,
                    ))
                },
            )
        }
    }

    /// A stream over a handle of the vendor's own library.
    ///
    /// # Safety
    /// As [`crate::runtime::Vendor::external_stream`].
    pub(super) unsafe fn external(
        instance: &Arc<Instance>,
        device: usize,
        handle: *mut c_void,
    ) -> Result<Self> {
        let index = instance.device(device)?;
        // SAFETY: as above, and the caller's promise.
        unsafe {
            Self::make(
                instance,
                device,
                Origin::External,
                "stream_external",
                |table, out| {
                    Some((table.stream_external?)(
                        instance.context,
                        index,
                        handle,
                        out,
                    ))
                },
            )
        }
    }

    /// The stream that `make` writes.
    ///
    /// # Safety
    /// Every promise that the function called by `make` needs, with a valid output.
    unsafe fn make(
        instance: &Arc<Instance>,
        device: usize,
        origin: Origin,
        function: &'static str,
        make: impl FnOnce(&FlagosVendor, *mut *mut FlagosVendorStream) -> Option<i32>,
    ) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        unsafe { instance.call(function, |table| make(table, &mut handle)) }?;
        let library = instance.library;
        if handle.is_null() {
            return Err(library.broken(function, "no stream"));
        }
        match origin {
            Origin::Default => instance.streams.note_lasting(handle),
            Origin::New => (instance.streams).note(library, function, "stream", handle)?,
            Origin::External => {}
        }
        Ok(Self {
            instance: Arc::clone(instance),
            handle,
            device,
            origin,
            queue: OnceLock::new(),
            // Whoever gave the handle has it.
            lent: AtomicBool::new(origin == Origin::External),
            captured: AtomicBool::new(false),
        })
    }

    /// The queue, if anything was ever posted. None in a forked child, which has no threads.
    fn queue(&self) -> Option<&Queue> {
        let queue = self.queue.get()?.as_ref();
        queue.filter(|_| !self.instance.is_forked())
    }

    /// Waits until everything posted has been queued.
    #[inline]
    fn drain(&self, cut: Cut) {
        if let Some(queue) = self.queue() {
            queue.drain(cut);
        }
    }

    /// The queue for a further part; none where the part is to be queued at once.
    fn queue_for_parts(&self) -> Option<&Queue> {
        if self.lent.load(Ordering::Acquire) || self.instance.is_capturing() || queue::is_ending() {
            return None;
        }
        let make = || {
            let made = Queue::new(self.instance.library)?;
            self.instance.note_queue(&made);
            Some(made)
        };
        self.queue.get_or_init(make).as_ref()
    }
}

impl Stream for LibraryStream {
    fn device(&self) -> usize {
        self.device
    }

    fn post(&self, part: Posted) -> Result<()> {
        if self.instance.is_forked() {
            part.give_up();
            return Err(Error::forked("post"));
        }
        if let Some(queue) = self.queue_for_parts() {
            return queue.post(part);
        }
        if let Err(error) = self.flush() {
            part.give_up();
            return Err(error);
        }
        queue::run(part, self.instance.library)
    }

    fn told(&self) -> Result<()> {
        self.queue().map_or(Ok(()), |queue| queue.tell(false))
    }

    fn flush(&self) -> Result<()> {
        let Some(queue) = self.queue() else {
            return Ok(());
        };
        queue.drain(Cut::Other);
        queue.tell(true)
    }

    fn query(&self) -> Result<bool> {
        self.drain(Cut::Other);
        let mut idle = 0;
        // SAFETY: a live stream and a valid output.
        unsafe { call!(self.instance, stream_query(self.handle, &mut idle)) }?;
        Ok(idle != 0)
    }

    /// Whether the stream is idle. Always true in a forked child, where nothing runs.
    fn is_idle(&self) -> bool {
        let is_idle = self.instance.library.table().stream_is_idle;
        // SAFETY: a live stream.
        self.instance.is_forked()
            || self.queue().is_none_or(Queue::is_empty)
                && is_idle.is_some_and(|is_idle| unsafe { is_idle(self.handle) } != 0)
    }

    fn sync(&self) -> Result<()> {
        self.drain(Cut::Other);
        // SAFETY: a live stream.
        unsafe { call!(self.instance, stream_sync(self.handle)) }
    }

    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        if nbytes == 0 {
            return Ok(());
        }
        self.drain(Cut::Copy);
        let kind = self.instance.copy_kind(self.device, dst, src);
        // SAFETY: a live stream, and the caller's promise.
        unsafe {
            call!(
                self.instance,
                stream_copy(self.handle, dst.cast(), src.cast(), nbytes, kind)
            )
        }
        .map_err(|error| error.with_context("bytes", nbytes))
    }

    unsafe fn launch(&self, function: HostFn, context: *mut c_void) -> Result<()> {
        self.drain(Cut::Other);
        // SAFETY: a live stream, and the caller's promise.
        unsafe {
            call!(
                self.instance,
                stream_host_function(self.handle, Some(function), context)
            )
        }
    }

    fn record(&self, event: &dyn Event) -> Result<()> {
        let event = LibraryEvent::of(event, &self.instance)?;
        if event.device != self.device {
            let message = format!(
                "an event of device {} was recorded on a stream of device {}",
                event.device, self.device
            );
            return Err(Error::invalid_argument("event_record", message)
                .with_hint("make the event for the stream's device"));
        }
        self.drain(Cut::Record);
        // SAFETY: a live event and a live stream of one device.
        unsafe { call!(self.instance, event_record(event.handle, self.handle)) }
    }

    fn wait(&self, event: &dyn Event) -> Result<()> {
        let event = LibraryEvent::of(event, &self.instance)?;
        self.drain(Cut::Other);
        // SAFETY: a live event and a live stream of one instance.
        unsafe { call!(self.instance, event_wait(event.handle, self.handle)) }
    }

    fn begin_capture(&self, mode: CaptureMode) -> Result<()> {
        // From before the beginning on nothing is posted: a part would be captured, or not, by its luck.
        self.instance.begin_capture();
        self.drain(Cut::Other);
        // SAFETY: a live stream.
        let begun = unsafe { call!(self.instance, capture_begin(self.handle, mode as i32)) };
        match &begun {
            Ok(()) => self.captured.store(true, Ordering::Release),
            Err(_) => self.instance.end_capture(),
        }
        begun
    }

    fn capture(&self) -> Result<Option<Capture>> {
        let Some(status) = self.instance.library.table().capture_status else {
            return Ok(None);
        };
        let (mut id, mut valid) = (0, 0);
        // SAFETY: a live stream and valid outputs.
        unsafe {
            self.instance.call("capture_status", |_| {
                Some(status(self.handle, &mut id, &mut valid))
            })
        }?;
        Ok((id != 0).then_some(Capture {
            id,
            valid: valid != 0,
        }))
    }

    fn end_capture(&self) -> Result<Arc<dyn Graph>> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: a live stream and a valid output.
        let ended = unsafe { call!(self.instance, capture_end(self.handle, &mut graph)) };
        let goes_on = ended.is_err() && matches!(self.capture(), Ok(Some(_)));
        if !goes_on && self.captured.swap(false, Ordering::AcqRel) {
            self.instance.end_capture();
        }
        ended?;
        Ok(Arc::new(LibraryGraph::adopt(&self.instance, graph)?))
    }

    unsafe fn replay(&self, graph: &dyn Graph) -> Result<()> {
        let graph = LibraryGraph::of(graph, &self.instance)?;
        self.drain(Cut::Other);
        // SAFETY: a live graph, a live stream, and the caller's promise.
        unsafe { call!(self.instance, graph_launch(graph.handle, self.handle)) }
    }

    fn library_handle(&self) -> Option<LibraryHandle> {
        Some(LibraryHandle {
            instance: NonNull::new(self.instance.context.cast())?,
            stream: NonNull::new(self.handle.cast())?,
        })
    }

    fn native_handle(&self) -> Option<*mut c_void> {
        let native = self.instance.library.table().stream_native_handle?;
        // Whoever has the handle expects its order to be that of the program.
        self.lent.store(true, Ordering::Release);
        self.drain(Cut::Other);
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live stream and a valid output.
        let status = unsafe {
            self.instance.call("stream_native_handle", |_| {
                Some(native(self.handle, &mut handle))
            })
        };
        status.ok().map(|()| handle)
    }
}

impl Drop for LibraryStream {
    fn drop(&mut self) {
        if let Some(queue) = self.queue() {
            queue.drain(Cut::Other);
            queue::end(queue);
        }
        if self.origin == Origin::New {
            self.instance.streams.forget(self.handle);
        }
        if self.origin != Origin::Default {
            // SAFETY: a live stream, which has no other user.
            unsafe {
                give_back!(self.instance, stream_destroy(self.handle));
            }
        }
    }
}
