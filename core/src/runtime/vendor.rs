//! The interface of a device vendor: memory, streams and events.
//!
//! The traits are object-safe, so that one process can hold vendors found at run time. Objects are shared
//! by `Arc`: dropping the last reference destroys a stream or an event. Queued work keeps references of its own.
//! Every vendor passes the same suite, that of the crate `flagos-vendor-kit`.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::{Error, Result};

use super::launch::{Launcher, Module};
use super::sync::AtomicU64;

/// Every address a vendor allocates is a multiple of this many bytes.
pub const ALIGNMENT: usize = 512;

/// The properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProperties {
    /// Product name.
    pub name: String,
    /// Memory of the device in bytes.
    pub total_memory: u64,
    /// Multiprocessors; cores on the host.
    pub multi_processor_count: i32,
    /// Compute capability, major.
    pub major: i32,
    /// Compute capability, minor.
    pub minor: i32,
}

/// Memory of a device as its vendor sees it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that are not allocated.
    pub free: u64,
    /// All bytes of the device.
    pub total: u64,
}

/// A C function queued on a stream. It must not unwind.
pub type HostFn = unsafe extern "C" fn(*mut c_void);

/// Which threads may not, while a stream is captured, make calls that wait for the device or that copy at once. Such a
/// call fails, and makes the capture invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(i32)]
pub enum CaptureMode {
    /// All threads.
    #[default]
    Global = 0,
    /// The thread that began the capture.
    ThreadLocal = 1,
    /// None. The capture may end on another thread than it began on.
    Relaxed = 2,
}

impl CaptureMode {
    /// The mode of a number of the C interfaces.
    #[must_use]
    pub const fn from_number(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::Global),
            1 => Some(Self::ThreadLocal),
            2 => Some(Self::Relaxed),
            _ => None,
        }
    }
}

/// The capture that a stream belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    /// The same number for all streams of one capture, another one for each capture of the device, never 0.
    pub id: u64,
    /// False once something has happened that the capture forbids: it can only be ended then.
    pub valid: bool,
}

/// A family of devices. Devices are numbered from 0 to `device_count() - 1`.
pub trait Vendor: Send + Sync {
    /// The name by which `FLAGOS_VENDOR` selects the vendor.
    fn name(&self) -> &'static str;

    /// The number of devices.
    fn device_count(&self) -> usize;

    /// Describes `device`.
    fn properties(&self, device: usize) -> Result<DeviceProperties>;

    /// Free and total memory of `device`.
    fn memory(&self, device: usize) -> Result<MemoryInfo>;

    /// Whether `device` addresses the memory of `peer` directly. No device is a peer of its own.
    fn reaches(&self, _device: usize, _peer: usize) -> Result<bool> {
        Ok(false)
    }

    /// Allocates `nbytes > 0` of device memory, aligned to [`ALIGNMENT`]; contents are unspecified.
    ///
    /// Fails with `OutOfMemory` when the device is full.
    fn alloc(&self, device: usize, nbytes: usize) -> Result<NonNull<u8>>;

    /// Gives memory back.
    ///
    /// # Safety
    /// `address` and `nbytes` are those of one live [`Vendor::alloc`] on `device`, and no queued
    /// work touches the memory.
    unsafe fn free(&self, device: usize, address: NonNull<u8>, nbytes: usize);

    /// The bytes by which kernels may read beyond the end of a tensor's memory. The caching allocator keeps them within
    /// the tensor's block, so that whoever allocates memory for kernels otherwise has to ask for as much more.
    fn padding(&self) -> usize {
        0
    }

    /// Allocates `nbytes > 0` of page-locked host memory that every device can copy from and to.
    fn pinned_alloc(&self, nbytes: usize) -> Result<NonNull<u8>>;

    /// Gives pinned memory back.
    ///
    /// # Safety
    /// As for [`Vendor::free`], with [`Vendor::pinned_alloc`].
    unsafe fn pinned_free(&self, address: NonNull<u8>, nbytes: usize);

    /// The default stream of `device`: the same one at each call.
    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>>;

    /// A new stream. A lower `priority` is more urgent, 0 is normal; values out of the vendor's
    /// range are clamped, and a vendor may have only one priority.
    fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>>;

    /// The stream behind a handle of the vendor's own library (a `CUstream`), which the caller created on
    /// `device` and destroys. Null is the default stream.
    ///
    /// # Safety
    /// The handle is live and outlives the returned stream.
    unsafe fn external_stream(
        &self,
        device: usize,
        handle: *mut c_void,
    ) -> Result<Arc<dyn Stream>> {
        let _ = (device, handle);
        Err(lacks(
            self.name(),
            "external_stream",
            "cannot use the streams of other libraries",
        ))
    }

    /// A new event for streams of `device`. Only an event made with `timing` has a time.
    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>>;

    /// Waits for all work queued on `device` so far. Reports the first failure that no stream has
    /// reported yet, and clears them all.
    fn device_sync(&self, device: usize) -> Result<()>;

    /// Waits as [`Vendor::device_sync`] does, but leaves failures to be reported to the user by a later call.
    /// Fails only where waiting is impossible: in work running on a stream.
    fn quiesce(&self, device: usize) -> Result<()>;

    /// [`Stream::flush`] of every stream.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the calling thread runs work of a stream, where waiting for a stream would deadlock.
    fn in_stream_work(&self) -> bool {
        false
    }

    /// Whether host code computes on device memory directly, as operators of the host vendor do on
    /// the calling thread. Of other vendors the host only copies memory, and waits for the copy.
    fn host_computes(&self) -> bool {
        true
    }

    /// Of a vendor with [`Vendor::host_computes`], the number of items queued and not finished, over all
    /// streams. After reading 0 with acquire ordering, host code sees the effects of all items and may use
    /// device memory. Of any other vendor always 0: host code uses no device memory, so it waits for nothing
    /// before it queues the next item.
    fn pending(&self) -> &AtomicU64;

    /// The capability of launching kernels. Fails with `Unsupported` where the vendor does not have it.
    fn launcher(&self) -> Result<&dyn Launcher> {
        Err(lacks(self.name(), "launcher", "launches no kernels"))
    }

    /// Loads a program for `device`, in the vendor's own format. Fails with `Unsupported` where the vendor launches no
    /// kernels.
    fn load_module(&self, device: usize, image: &[u8]) -> Result<Box<dyn Module>> {
        let _ = (device, image);
        Err(lacks(self.name(), "load_module", "launches no kernels"))
    }

    /// The capability of capturing the work of streams into graphs. Fails with `Unsupported`, and the reason, where the
    /// vendor does not have it.
    fn captures(&self) -> Result<()> {
        Err(lacks(self.name(), "capture", "records no graphs"))
    }

    /// The capability of sharing device memory between processes. Fails with `Unsupported`, and the reason, where the
    /// vendor does not have it.
    fn sharing(&self) -> Result<&dyn Sharing> {
        Err(lacks(
            self.name(),
            "sharing",
            "shares no memory between processes",
        ))
    }

    /// Called in a forked child, where no thread of the vendor exists any more.
    fn after_fork_in_child(&self) {}
}

/// Device memory as other processes of the machine know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The key of an allocation: a text without spaces, by which other processes import the whole of it.
    pub key: String,
    /// The bytes from the beginning of the allocation to the address that was exported.
    pub offset: usize,
    /// The bytes of the allocation.
    pub nbytes: usize,
}

/// The capability of sharing device memory between processes.
pub trait Sharing: Send + Sync {
    /// The key of the live [`Vendor::alloc`] in which an address of `device` lies. The allocation has to stay until every
    /// process that imported it has closed it.
    fn export(&self, device: usize, address: NonNull<u8>) -> Result<Exported>;

    /// The memory of another process, at an address of this one. Importing it again gives the same address, and each is to be
    /// closed.
    ///
    /// # Safety
    /// `key` and `nbytes` are those of an [`Exported`] of memory that is still there.
    unsafe fn import(&self, device: usize, key: &str, nbytes: usize) -> Result<NonNull<u8>>;

    /// Closes imported memory, after waiting for the device, on which queued work may use it.
    ///
    /// # Safety
    /// The address is that of an [`Sharing::import`] on `device` that was not closed, and nobody uses it any more.
    unsafe fn close(&self, device: usize, address: NonNull<u8>);

    /// Closes everything that was imported, at the end of the process, when nobody uses it any more although it was not
    /// closed. [`Sharing::close`] does nothing afterwards.
    fn close_all(&self);
}

/// A stream of a vendor that is a library, as `flagos_vendor.h` has it. The handles live as long as the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibraryHandle {
    /// The `FlagosVendorInstance`.
    pub instance: NonNull<c_void>,
    /// The `FlagosVendorStream`.
    pub stream: NonNull<c_void>,
}

/// The error of a capability that a vendor does not have.
#[cold]
fn lacks(vendor: &str, operation: &'static str, what: &str) -> Error {
    Error::unsupported(operation, format!("the vendor `{vendor}` {what}"))
}

/// A queue of work that runs in order.
pub trait Stream: Send + Sync {
    /// The device of the stream.
    fn device(&self) -> usize;

    /// Whether everything queued has finished. A failure of queued work that has not been reported
    /// is returned here, once.
    fn query(&self) -> Result<bool>;

    /// Whether everything queued has finished. Reports no failure.
    fn is_idle(&self) -> bool;

    /// Waits for everything queued so far. Returns at once when the stream is idle. A failure of
    /// queued work that has not been reported is returned here, once.
    fn sync(&self) -> Result<()>;

    /// Queues a copy of `nbytes` between any two of: device memory, pinned and ordinary memory. When
    /// one side is ordinary memory, or both are the host's, a vendor may wait for the copy.
    ///
    /// # Safety
    /// Both ranges stay valid, and are not written by anything unordered, until the copy has run.
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()>;

    /// Queues a call of `function(context)` on a thread of the vendor. Once this has returned `Ok`
    /// the call happens, whether or not earlier work failed, unless the device itself is lost.
    ///
    /// The function must not wait for functions of other streams: a vendor may run all of them on one
    /// thread. Within the function a vendor may refuse every call with `Unsupported`, except those that free
    /// memory and drop streams or events.
    ///
    /// # Safety
    /// `function` may be called with `context` from another thread, once.
    unsafe fn launch(&self, function: HostFn, context: *mut c_void) -> Result<()>;

    /// Records `event`: from now on it stands for the work queued so far.
    fn record(&self, event: &dyn Event) -> Result<()>;

    /// Lets work queued from now on start only after the work that `event` stands for now. An event that
    /// was never recorded is no constraint.
    fn wait(&self, event: &dyn Event) -> Result<()>;

    /// Begins a capture: until its end, work queued on the stream is not run but becomes part of a graph. A stream that
    /// waits for an event recorded in the capture joins it, and must come back, by an event that this stream waits for.
    ///
    /// While the stream is captured it cannot be waited for or asked whether it is idle, nor can an event recorded in the
    /// capture, nor the device. It takes neither copies of ordinary memory nor functions of the host, whose context
    /// serves one call. All these fail with `Unsupported`, and change nothing.
    fn begin_capture(&self, mode: CaptureMode) -> Result<()> {
        let _ = mode;
        Err(no_graphs("begin_capture"))
    }

    /// The capture that the stream belongs to, if any. Called for each allocation while a stream is captured.
    fn capture(&self) -> Result<Option<Capture>> {
        Ok(None)
    }

    /// Ends the capture that began on this stream, whether this succeeds or not. The graph can be run for as long as the
    /// memory that it uses is there.
    fn end_capture(&self) -> Result<Arc<dyn Graph>> {
        Err(no_graphs("end_capture"))
    }

    /// Queues all work of a graph of the same device.
    ///
    /// # Safety
    /// The memory that the graph uses stays valid until it has run.
    unsafe fn replay(&self, graph: &dyn Graph) -> Result<()> {
        let _ = graph;
        Err(no_graphs("replay"))
    }

    /// Has a part of a kernel's call queued on this stream, after all that was posted before: now, or by another thread
    /// soon. What fails there is an error of a later `post`, [`Self::told`] or [`Self::flush`]. Other methods wait until everything posted has
    /// been queued.
    fn post(&self, part: Posted) -> Result<()> {
        part.give_up();
        Err(Error::unsupported(
            "post",
            "the streams of this vendor are no library's",
        ))
    }

    /// A failure of something posted, if the calling thread has to know of one. Does not wait.
    fn told(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until everything posted has been queued, and returns what failed.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// The stream as the library of the vendor knows it, by whose kernels the library computes on it; none for a vendor
    /// that is no library. Called for each kernel.
    fn library_handle(&self) -> Option<LibraryHandle> {
        None
    }

    /// The stream's handle in the vendor's own library (a `CUstream`, null for the default stream), if the
    /// vendor has handles. The handle lives as long as the stream.
    fn native_handle(&self) -> Option<*mut c_void> {
        None
    }
}

/// A part of a kernel's call, which queues its work.
#[derive(Debug)]
pub struct Posted {
    operator: &'static str,
    run: unsafe extern "C" fn(argument: *mut c_void, queues: i32) -> i32,
    argument: *mut c_void,
}

// SAFETY: `new`'s caller promises it.
unsafe impl Send for Posted {}

impl Posted {
    /// A part of a call of `operator`: `run(argument, 1)` queues the work and returns one of `FLAGOS_VENDOR_*`,
    /// `run(argument, 0)` gives it up.
    ///
    /// # Safety
    /// One of them may be called once, from any thread.
    pub unsafe fn new(
        operator: &'static str,
        run: unsafe extern "C" fn(*mut c_void, i32) -> i32,
        argument: *mut c_void,
    ) -> Self {
        Self {
            operator,
            run,
            argument,
        }
    }

    /// The name of the operator.
    #[must_use]
    pub fn operator(&self) -> &'static str {
        self.operator
    }

    /// Queues the work, and returns the status.
    #[must_use]
    pub fn run(self) -> i32 {
        // SAFETY: the promise of `new`'s caller.
        unsafe { (self.run)(self.argument, 1) }
    }

    /// Frees what belongs to the part.
    pub fn give_up(self) {
        // SAFETY: as above.
        unsafe { (self.run)(self.argument, 0) };
    }
}

#[cold]
fn no_graphs(operation: &'static str) -> Error {
    Error::unsupported(operation, "the streams of this vendor record no graphs")
}

/// Work that was captured. It is destroyed by the drop, after the runs that are queued.
pub trait Graph: Send + Sync {
    /// The graph as `Any`, in which a vendor's streams find the vendor's own type.
    fn as_any(&self) -> &dyn Any;
}

/// A point in a stream. Before the first record it counts as finished.
pub trait Event: Send + Sync {
    /// Whether the recorded work has finished. If work before it failed, returns that failure.
    fn query(&self) -> Result<bool>;

    /// Waits for the recorded work. If work before it failed, returns that failure.
    fn sync(&self) -> Result<()>;

    /// Milliseconds from this event to `end`. Both must have timing, be recorded and finished.
    fn elapsed_ms(&self, end: &dyn Event) -> Result<f64>;

    /// The event as `Any`, in which a vendor's streams find the vendor's own type.
    fn as_any(&self) -> &dyn Any;
}

/// Queues a Rust closure on `stream`. The closure must not panic: it would abort the process.
pub fn launch_closure<F: FnOnce() + Send + 'static>(stream: &dyn Stream, work: F) -> Result<()> {
    unsafe extern "C" fn call<F: FnOnce()>(context: *mut c_void) {
        // SAFETY: `context` is the box leaked below, and a stream calls a function once.
        let work = unsafe { Box::from_raw(context.cast::<F>()) };
        work();
    }
    let context = Box::into_raw(Box::new(work));
    // SAFETY: `F` is `Send`, and `call::<F>` takes back the box of that type.
    let queued = unsafe { stream.launch(call::<F>, context.cast()) };
    if queued.is_err() {
        // SAFETY: the call will not happen, so the box is still ours.
        drop(unsafe { Box::from_raw(context) });
    }
    queued
}
