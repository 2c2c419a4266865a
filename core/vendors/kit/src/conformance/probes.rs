//! How checks hold up a stream, watch it, and look at its memory.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use flagos_core::Result;
use flagos_core::runtime::sync::{Condvar, Mutex};
use flagos_core::runtime::{Stream, Vendor, launch_closure};

/// The outcome of a check, or of a step of it: what is wrong, in words.
pub type Outcome = std::result::Result<(), String>;

/// Fails with `what` unless the condition holds.
pub(super) fn ensure(condition: bool, what: impl Into<String>) -> Outcome {
    condition.then_some(()).ok_or_else(|| what.into())
}

/// The value of a call that must succeed.
pub(super) fn good<T>(what: &str, outcome: Result<T>) -> std::result::Result<T, String> {
    outcome.map_err(|error| format!("{what}: {error}"))
}

/// Work that keeps its stream busy until it is opened or dropped.
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Queues the work.
    pub fn on(stream: &dyn Stream) -> std::result::Result<Self, String> {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let inside = Arc::clone(&gate);
        let work = move || {
            let mut open = inside.0.lock();
            while !*open {
                open = inside.1.wait(open);
            }
        };
        good("launch", launch_closure(stream, work))?;
        Ok(Self(gate))
    }

    /// Lets the work end.
    pub fn open(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// Pinned memory of a vendor.
pub struct Pinned<'v> {
    vendor: &'v dyn Vendor,
    data: NonNull<u8>,
    nbytes: usize,
}

impl<'v> Pinned<'v> {
    /// Allocates the memory, and fills it with zeros.
    pub fn new(vendor: &'v dyn Vendor, nbytes: usize) -> std::result::Result<Self, String> {
        let data = good("pinned_alloc", vendor.pinned_alloc(nbytes))?;
        // SAFETY: just allocated with this size.
        unsafe { data.as_ptr().write_bytes(0, nbytes) };
        Ok(Self {
            vendor,
            data,
            nbytes,
        })
    }

    /// The address of the memory.
    pub fn address(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// A byte that streams may write at any time.
    pub fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.nbytes);
        // SAFETY: within the allocation, aligned, and atomics have no invalid values.
        unsafe { AtomicU8::from_ptr(self.address().add(at)) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // Queued copies may still use it.
        let quiet = (0..self.vendor.device_count()).all(|d| self.vendor.quiesce(d).is_ok());
        if quiet {
            // SAFETY: from `pinned_alloc` with this size, and nothing is queued any more.
            unsafe { self.vendor.pinned_free(self.data, self.nbytes) };
        }
    }
}

/// Queues a copy between ranges that the caller keeps alive until the stream is synchronised.
pub(super) fn copy(stream: &dyn Stream, dst: *mut u8, src: *const u8, nbytes: usize) -> Outcome {
    // SAFETY: every caller keeps both ranges alive until the stream is synchronised.
    good("copy", unsafe { stream.copy(dst, src, nbytes) })
}

/// A byte that host functions watch. A copy from device memory raises it, the one kind of copy that no vendor
/// waits for.
pub(super) struct Flag<'v> {
    byte: Pinned<'v>,
    one: NonNull<u8>,
}

impl<'v> Flag<'v> {
    /// Allocates all memory of the flag before work is queued, because allocating may wait for the device.
    pub(super) fn new(vendor: &'v dyn Vendor) -> std::result::Result<Self, String> {
        let byte = Pinned::new(vendor, 1)?;
        let one = good("alloc", vendor.alloc(0, 1))?;
        let flag = Self { byte, one };
        let stream = good("stream", vendor.stream(0, 0))?;
        flag.byte.byte(0).store(1, Ordering::Relaxed);
        copy(&*stream, one.as_ptr(), flag.byte.address(), 1)?;
        good("sync", stream.sync())?;
        flag.byte.byte(0).store(0, Ordering::Relaxed);
        Ok(flag)
    }

    /// Queues the copy that raises the flag.
    pub(super) fn raise_on(&self, stream: &dyn Stream) -> Outcome {
        copy(stream, self.byte.address(), self.one.as_ptr(), 1)
    }

    /// Whether the copy has run.
    pub(super) fn is_raised(&self) -> bool {
        self.byte.byte(0).load(Ordering::Acquire) != 0
    }

    /// The address of the byte, for host functions.
    pub(super) fn address(&self) -> usize {
        self.byte.address() as usize
    }
}

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        let vendor = self.byte.vendor;
        if vendor.quiesce(0).is_ok() {
            // SAFETY: allocated in `new` with this size, and nothing is queued any more.
            unsafe { vendor.free(0, self.one, 1) };
        }
    }
}
