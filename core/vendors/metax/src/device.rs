//! A device, which the runtime makes the current one of a thread.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::DeviceProperties;
use flagos_vendor_kit::allocations::Allocations;
use flagos_vendor_kit::stream_work;

use super::api::{Api, Handle};
use super::driver;
use super::error::mc;

/// One device. Streams and events keep it alive.
pub(super) struct Device {
    pub(super) api: &'static Api,
    /// The device's number, which is also the runtime's.
    pub(super) index: usize,
    pub(super) properties: OnceLock<DeviceProperties>,
    /// The allocations of all devices.
    pub(super) allocations: Arc<Allocations>,
    /// Whether the device was ever current for a call of ours.
    used: AtomicBool,
    /// Bit `n`: access to the memory of device `n` has been arranged, or is impossible.
    pub(super) peers: AtomicU64,
    /// A mask with one bit for each device of the vendor.
    all: u64,
    discarded: Mutex<Vec<Discarded>>,
}

/// A handle or memory to give back. Work running on a stream must not call the runtime, so it only queues these.
#[derive(Clone, Copy)]
pub(super) enum Discarded {
    Stream(Handle),
    Event(Handle),
    Module(Handle),
    Memory(*mut c_void),
    Pinned(*mut c_void),
}

// SAFETY: the runtime's handles may be used from every thread; these are used once.
unsafe impl Send for Discarded {}

impl Device {
    pub(super) fn new(
        api: &'static Api,
        index: usize,
        count: usize,
        allocations: Arc<Allocations>,
    ) -> Self {
        Self {
            api,
            index,
            properties: OnceLock::new(),
            allocations,
            used: AtomicBool::new(false),
            peers: AtomicU64::new(1 << (index % 64)),
            all: 1_u64
                .checked_shl(u32::try_from(count).unwrap_or(u32::MAX))
                .map_or(u64::MAX, |bit| bit - 1),
            discarded: Mutex::default(),
        }
    }

    /// The device's number, for the runtime.
    pub(super) fn raw(&self) -> c_int {
        c_int::try_from(self.index).unwrap_or(c_int::MAX)
    }

    /// Whether access to the memory of some other device has not been arranged yet.
    pub(super) fn has_new_peers(&self) -> bool {
        self.peers.load(Ordering::Relaxed) & self.all != self.all
    }

    /// Whether the device was ever current for a call of ours.
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Makes the device current on this thread. Dropping the guard restores the one that was current before, from which
    /// torch derives its own. Fails in a forked child, and in work running on a stream.
    #[inline]
    pub(super) fn enter(&self, operation: &'static str) -> Result<Entered<'_>> {
        if driver::is_forked() {
            return Err(Error::forked(operation));
        }
        stream_work::refuse(operation, "MetaX")?;
        let mut before = -1;
        // SAFETY: a valid output.
        unsafe { mc!(self.api, mcGetDevice(&mut before)) }?;
        let raw = self.raw();
        if before != raw || !self.is_used() {
            // SAFETY: a device that was counted.
            unsafe { mc!(self.api, mcSetDevice(raw)) }.map_err(|error| self.located(error))?;
            self.used.store(true, Ordering::Release);
        }
        Ok(Entered {
            api: self.api,
            restore: (before != raw).then_some(before),
            _thread: PhantomData,
        })
    }

    /// Adds the device to an error.
    #[cold]
    pub(super) fn located(&self, error: Error) -> Error {
        error.with_context("device", self.index)
    }

    /// Destroys a handle or frees memory: at once, or later when called in work running on a stream.
    pub(super) fn discard(&self, item: Discarded) {
        // In a forked child the handle is invalid.
        if driver::is_forked() {
            return;
        }
        if stream_work::is_current() {
            self.discarded.lock().push(item);
            return;
        }
        let destroyed = self
            .enter("destroy")
            .and_then(|_entered| self.destroy(item));
        if let Err(error) = destroyed {
            tracing::error!(device = self.index, %error, "an object of the device was not destroyed");
        }
    }

    fn destroy(&self, item: Discarded) -> Result<()> {
        // SAFETY: callers discard only items that they own, and do not use them afterwards. The runtime keeps streams and
        // events until their work has run.
        unsafe {
            match item {
                Discarded::Stream(stream) => mc!(self.api, mcStreamDestroy(stream)),
                Discarded::Event(event) => mc!(self.api, mcEventDestroy(event)),
                Discarded::Module(module) => mc!(self.api, mcModuleUnload(module)),
                Discarded::Memory(address) => mc!(self.api, mcFree(address)),
                Discarded::Pinned(address) => mc!(self.api, mcFreeHost(address)),
            }
        }
    }

    /// Destroys the items that work running on a stream has discarded.
    pub(super) fn bury(&self) {
        let items = std::mem::take(&mut *self.discarded.lock());
        for item in items {
            self.discard(item);
        }
    }
}

/// The guard of [`Device::enter`]: while it lives, the device is current on the calling thread.
pub(super) struct Entered<'d> {
    api: &'d Api,
    restore: Option<c_int>,
    /// Keeps the guard on its thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(device) = self.restore {
            // SAFETY: what was current a moment ago on this thread.
            if let Err(error) = unsafe { mc!(self.api, mcSetDevice(device)) } {
                tracing::error!(%error, "the current device of a thread was not restored");
            }
        }
    }
}
