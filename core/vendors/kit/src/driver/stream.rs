//! Streams of a driver that queues all work itself.

use std::ffi::c_void;
use std::sync::Arc;

use flagos_core::error::Result;
use flagos_core::runtime::{Capture, Event, HostFn, Stream};

use super::{Discarded, DriverEvent, DriverEvents, Handle};
use crate::stream_work;

/// A driver's functions of streams. The null handle is the default stream, which is also torch's.
pub trait DriverStreams: DriverEvents<Discarded = Discarded> {
    /// A new stream, which does not wait for the default stream. A more urgent priority is a lower number.
    fn new_stream(&self, priority: i32) -> Result<Handle>;

    /// Fails for a stream of another device, with the device in the error.
    fn check_stream(&self, stream: &DriverStream<Self>) -> Result<()>;

    /// Whether everything queued has run.
    fn is_finished(&self, stream: &DriverStream<Self>) -> Result<bool>;

    /// Waits for everything queued.
    fn wait_for_stream(&self, stream: &DriverStream<Self>) -> Result<()>;

    /// Waits for the work of all streams.
    fn wait_for_all(&self) -> Result<()>;

    /// Queues a copy of at least one byte between any two kinds of memory.
    ///
    /// # Safety
    /// As [`Stream::copy`].
    unsafe fn queue_copy(
        &self,
        stream: &DriverStream<Self>,
        dst: *mut u8,
        src: *const u8,
        nbytes: usize,
    ) -> Result<()>;

    /// Queues a call of `function`.
    ///
    /// # Safety
    /// As [`Stream::launch`].
    unsafe fn queue_call(
        &self,
        stream: &DriverStream<Self>,
        function: HostFn,
        context: *mut c_void,
    ) -> Result<()>;

    /// Queues a record of an event of this device.
    fn queue_record(&self, stream: &DriverStream<Self>, event: &DriverEvent<Self>) -> Result<()>;

    /// Queues a wait for an event of any device.
    fn queue_wait(&self, stream: &DriverStream<Self>, event: &DriverEvent<Self>) -> Result<()>;

    /// As [`Stream::capture`]. The device is not current.
    fn capture(&self, _stream: &DriverStream<Self>) -> Result<Option<Capture>> {
        Ok(None)
    }
}

/// A stream of a device.
pub struct DriverStream<D: DriverStreams> {
    device: Arc<D>,
    handle: Handle,
    /// Whether dropping the stream destroys the handle.
    owned: bool,
}

// SAFETY: drivers' handles may be used from every thread.
unsafe impl<D: DriverStreams> Send for DriverStream<D> {}
// SAFETY: as above.
unsafe impl<D: DriverStreams> Sync for DriverStream<D> {}

impl<D: DriverStreams> DriverStream<D> {
    /// The default stream.
    pub fn default(device: &Arc<D>) -> Self {
        Self {
            device: Arc::clone(device),
            handle: std::ptr::null_mut(),
            owned: false,
        }
    }

    /// A new stream: see [`DriverStreams::new_stream`].
    pub fn new(device: &Arc<D>, priority: i32) -> Result<Self> {
        let _entered = device.enter("stream")?;
        let handle = device.new_stream(priority);
        Ok(Self {
            handle: handle.map_err(|error| device.located(error))?,
            device: Arc::clone(device),
            owned: true,
        })
    }

    /// A stream around a handle that the caller created and destroys.
    ///
    /// # Safety
    /// `handle` is a live stream of the device (or null, the default stream) and outlives the returned stream.
    pub unsafe fn external(device: &Arc<D>, handle: Handle) -> Result<Self> {
        let _entered = device.enter("external_stream")?;
        let stream = Self {
            device: Arc::clone(device),
            handle,
            owned: false,
        };
        device.check_stream(&stream)?;
        Ok(stream)
    }

    /// The stream's handle in the driver, which is live, or null.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Makes a call of the driver with the device current.
    #[inline]
    fn on_device<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&D) -> Result<T>,
    ) -> Result<T> {
        let _entered = self.device.enter(operation)?;
        call(&self.device).map_err(|error| self.device.located(error))
    }
}

impl<D: DriverStreams> Stream for DriverStream<D> {
    fn device(&self) -> usize {
        self.device.index()
    }

    fn query(&self) -> Result<bool> {
        self.on_device("stream_query", |device| device.is_finished(self))
    }

    /// Whether the stream is idle: also after a failure, when nothing runs any more. False in work running on a
    /// stream, where the driver cannot be asked.
    fn is_idle(&self) -> bool {
        !stream_work::is_current() && self.query().unwrap_or(true)
    }

    fn sync(&self) -> Result<()> {
        self.on_device("stream_sync", |device| device.wait_for_stream(self))
    }

    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        if nbytes == 0 {
            return Ok(());
        }
        let _entered = self.device.enter("copy")?;
        // SAFETY: the caller's promise.
        unsafe { self.device.queue_copy(self, dst, src, nbytes) }
            .map_err(|error| self.device.located(error).with_context("bytes", nbytes))
    }

    unsafe fn launch(&self, function: HostFn, context: *mut c_void) -> Result<()> {
        self.on_device("launch", |device| {
            stream_work::queue(function, context, |run, call| {
                // SAFETY: the caller lets the function be called.
                unsafe { device.queue_call(self, run, call) }
            })
        })
    }

    fn record(&self, event: &dyn Event) -> Result<()> {
        let event = DriverEvent::to_record(event, &*self.device)?;
        self.on_device("event_record", |device| device.queue_record(self, event))?;
        event.set_recorded(false);
        Ok(())
    }

    fn wait(&self, event: &dyn Event) -> Result<()> {
        let event = DriverEvent::from_dyn(event)?;
        if !event.is_recorded() {
            return Ok(());
        }
        self.on_device("event_wait", |device| device.queue_wait(self, event))
    }

    fn capture(&self) -> Result<Option<Capture>> {
        self.device.capture(self)
    }

    fn native_handle(&self) -> Option<*mut c_void> {
        Some(self.handle)
    }
}

impl<D: DriverStreams> Drop for DriverStream<D> {
    /// Destroys the stream. The driver still runs all queued work.
    fn drop(&mut self) {
        if self.owned {
            self.device.discard(Discarded::Stream(self.handle));
        }
    }
}
