//! Streams of a library.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::runtime::{Capture, CaptureMode, Event, Graph, HostFn, LibraryHandle, Stream};

use super::call::{call, give_back};
use super::event::LibraryEvent;
use super::graph::LibraryGraph;
use super::instance::Instance;
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
        })
    }
}

impl Stream for LibraryStream {
    fn device(&self) -> usize {
        self.device
    }

    fn query(&self) -> Result<bool> {
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
            || is_idle.is_some_and(|is_idle| unsafe { is_idle(self.handle) } != 0)
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: a live stream.
        unsafe { call!(self.instance, stream_sync(self.handle)) }
    }

    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        if nbytes == 0 {
            return Ok(());
        }
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
        // SAFETY: a live event and a live stream of one device.
        unsafe { call!(self.instance, event_record(event.handle, self.handle)) }
    }

    fn wait(&self, event: &dyn Event) -> Result<()> {
        let event = LibraryEvent::of(event, &self.instance)?;
        // SAFETY: a live event and a live stream of one instance.
        unsafe { call!(self.instance, event_wait(event.handle, self.handle)) }
    }

    fn begin_capture(&self, mode: CaptureMode) -> Result<()> {
        // SAFETY: a live stream.
        unsafe { call!(self.instance, capture_begin(self.handle, mode as i32)) }
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
        unsafe { call!(self.instance, capture_end(self.handle, &mut graph)) }?;
        Ok(Arc::new(LibraryGraph::adopt(&self.instance, graph)?))
    }

    unsafe fn replay(&self, graph: &dyn Graph) -> Result<()> {
        let graph = LibraryGraph::of(graph, &self.instance)?;
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
