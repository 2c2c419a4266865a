//! An opened vendor, shared by its streams and events.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::runtime::sync::AtomicU64;

use super::call::call;
use super::given::{Handles, Memory};
use super::loaded::Library;
use super::queue::{Cut, Queue};
use super::types::*;

/// An opened vendor. Its streams and events own it, so it is closed after them.
pub(super) struct Instance {
    pub(super) library: &'static Library,
    pub(super) context: *mut FlagosVendorInstance,
    pub(super) devices: usize,
    /// The count of unfinished work, which the library writes. Work may run, and count, after everything was destroyed.
    pub(super) pending: &'static AtomicU64,
    /// Every allocation, whose place gives the kind of a copy.
    pub(super) memory: Memory,
    pub(super) streams: Handles,
    pub(super) events: Handles,
    forked: AtomicBool,
    /// The queues of all streams on which something was ever posted.
    queues: Mutex<Vec<Queue>>,
    has_queues: AtomicBool,
    /// The captures that go on.
    captures: AtomicUsize,
}

// SAFETY: the library's instance may be used from every thread.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

impl Instance {
    /// Opens the vendor.
    pub(super) fn open(library: &'static Library, pending: &'static AtomicU64) -> Result<Self> {
        let counts = library.can(FLAGOS_VENDOR_HOST_COMPUTES);
        let options = FlagosVendorOptions {
            struct_size: std::mem::size_of::<FlagosVendorOptions>(),
            pending: if counts {
                std::ptr::from_ref(pending).cast_mut().cast::<u64>()
            } else {
                std::ptr::null_mut()
            },
            reserved: [std::ptr::null(); 8],
        };
        let mut context = std::ptr::null_mut();
        // SAFETY: valid options and a valid output.
        unsafe { call!(library, open(&options, &mut context)) }?;
        if context.is_null() {
            return Err(library.broken("open", "no instance"));
        }
        let mut instance = Self {
            library,
            context,
            devices: 0,
            pending,
            memory: Memory::default(),
            streams: Handles::default(),
            events: Handles::default(),
            forked: AtomicBool::new(false),
            queues: Mutex::default(),
            has_queues: AtomicBool::new(false),
            captures: AtomicUsize::new(0),
        };
        let mut count = 0;
        // SAFETY: a live instance and a valid output.
        unsafe { call!(instance, device_count(context, &mut count)) }?;
        instance.devices = library.count("device_count", count)?;
        // Where the vendor was chosen, by this number, its probe has succeeded.
        let probed = library.probe().unwrap_or(instance.devices);
        if instance.devices != probed {
            let found = format!("{count} devices, but probe gives {probed}");
            return Err(library.broken("device_count", found));
        }
        Ok(instance)
    }

    /// [`Library::call`], except in a forked child.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(super) unsafe fn call(
        &self,
        function: &'static str,
        make: impl FnOnce(&FlagosVendor) -> Option<i32>,
    ) -> Result<()> {
        if self.is_forked() {
            return Err(Error::forked(function));
        }
        // SAFETY: the caller's promise.
        unsafe { self.library.call(function, make) }
    }

    /// [`Self::call`] for callers that cannot return an error: it goes to the log. Does nothing in a forked child.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn give_back(
        &self,
        function: &'static str,
        make: impl FnOnce(&FlagosVendor) -> Option<i32>,
    ) {
        if self.is_forked() {
            return;
        }
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { self.library.call(function, make) } {
            tracing::error!(%error, "a vendor's library takes something not back");
        }
    }

    /// The device as the library takes it.
    pub(super) fn device(&self, device: usize) -> Result<i32> {
        let index = i32::try_from(device).ok().filter(|_| device < self.devices);
        index.ok_or_else(|| {
            let name = &self.library.description().name;
            let message = format!("there is no device {device} of the vendor `{name}`");
            Error::invalid_argument("device", message)
                .with_hint(format!("there are {}, numbered from 0", self.devices))
        })
    }

    /// The kind of a copy on a stream of `device`.
    pub(super) fn copy_kind(&self, device: usize, to: *mut u8, from: *const u8) -> i32 {
        if self.library.can(FLAGOS_VENDOR_TELLS_MEMORY) {
            return FLAGOS_VENDOR_COPY_ANY;
        }
        let to = self.memory.device(to as usize);
        let from = self.memory.device(from as usize);
        if [to, from]
            .into_iter()
            .flatten()
            .any(|other| other != device)
        {
            return FLAGOS_VENDOR_COPY_PEER;
        }
        match (to.is_some(), from.is_some()) {
            (true, false) => FLAGOS_VENDOR_COPY_HOST_TO_DEVICE,
            (false, true) => FLAGOS_VENDOR_COPY_DEVICE_TO_HOST,
            (true, true) => FLAGOS_VENDOR_COPY_DEVICE_TO_DEVICE,
            (false, false) => FLAGOS_VENDOR_COPY_HOST_TO_HOST,
        }
    }

    /// Notes the queue of a stream.
    pub(super) fn note_queue(&self, queue: &Queue) {
        let mut queues = self.queues.lock();
        queues.retain(|queue| !queue.has_ended());
        queues.push(queue.clone());
        self.has_queues.store(true, Ordering::Release);
    }

    /// The queues of all streams. None in a forked child.
    fn queues(&self) -> Vec<Queue> {
        if !self.has_queues.load(Ordering::Acquire) || self.is_forked() {
            return Vec::new();
        }
        self.queues.lock().clone()
    }

    /// Waits until everything posted on any stream has been queued.
    #[inline]
    pub(super) fn drain(&self, cut: Cut) {
        if self.has_queues.load(Ordering::Acquire) {
            self.queues().iter().for_each(|queue| queue.drain(cut));
        }
    }

    /// [`Self::drain`], and the first failure that is to be told.
    pub(super) fn flush(&self) -> Result<()> {
        let queues = self.queues();
        queues.iter().for_each(|queue| queue.drain(Cut::Other));
        queues.iter().try_for_each(|queue| queue.tell(true))
    }

    /// Whether any stream is being captured: then nothing is posted.
    pub(super) fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Acquire) != 0
    }

    /// Notes that a capture begins.
    pub(super) fn begin_capture(&self) {
        self.captures.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a capture has ended.
    pub(super) fn end_capture(&self) {
        self.captures.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether this is a forked child, where the library is not called any more.
    pub(super) fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// Tells the library that this is a forked child.
    pub(super) fn after_fork_in_child(&self) {
        if self.forked.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(forked) = self.library.table().after_fork_in_child {
            // SAFETY: a live instance, in a forked child.
            unsafe { forked(self.context) };
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        if let Some(close) = self.library.table().close {
            // SAFETY: opened by `open`; streams and events keep the instance, so there are none.
            unsafe { close(self.context) };
        }
    }
}
