//! A device, which the runtime makes the current one of a thread.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use flagos_core::error::Result;
use flagos_core::runtime::DeviceProperties;
use flagos_vendor_kit::allocations::Allocations;
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{Discarded, DriverDevice, Peers, Process};

use super::api::Api;
use super::driver::PROCESS;
use super::visible;

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
    pub(super) peers: Peers,
    discarded: Mutex<Vec<Discarded>>,
}

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
            peers: Peers::new(index, count),
            discarded: Mutex::default(),
        }
    }

    /// The device's number, for the runtime.
    pub(super) fn raw(&self) -> c_int {
        c_int::try_from(self.index).unwrap_or(c_int::MAX)
    }
}

impl DriverDevice for Device {
    const FAMILY: &'static str = "MetaX";
    const LIBRARY: &'static str = "MetaX";
    const VARIABLE: &'static str = visible::VARIABLE;

    type Current = c_int;
    type Discarded = Discarded;

    fn process() -> &'static Process {
        &PROCESS
    }

    #[inline]
    fn index(&self) -> usize {
        self.index
    }

    /// Makes the device current. Torch derives its own from the one that was current before.
    #[inline]
    fn switch(&self, _operation: &'static str) -> Result<Option<c_int>> {
        let mut before = -1;
        // SAFETY: a valid output.
        unsafe { call!(self.api, mcGetDevice(&mut before)) }?;
        let raw = self.raw();
        if before != raw || !self.is_used() {
            // SAFETY: a device that was counted.
            unsafe { call!(self.api, mcSetDevice(raw)) }.map_err(|error| self.located(error))?;
            self.used.store(true, Ordering::Release);
        }
        Ok((before != raw).then_some(before))
    }

    fn switch_back(&self, before: c_int) -> Result<()> {
        // SAFETY: what was current a moment ago on this thread.
        unsafe { call!(self.api, mcSetDevice(before)) }
    }

    #[inline]
    fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    fn discarded(&self) -> &Mutex<Vec<Discarded>> {
        &self.discarded
    }

    fn destroy(&self, item: &Discarded) -> Result<bool> {
        let _entered = self.enter("destroy")?;
        // SAFETY: callers discard only items that they own, and do not use them afterwards. The runtime keeps streams and
        // events until their work has run.
        unsafe {
            match *item {
                Discarded::Stream(stream) => call!(self.api, mcStreamDestroy(stream)),
                Discarded::Event(event) => call!(self.api, mcEventDestroy(event)),
                Discarded::Module(module) => call!(self.api, mcModuleUnload(module)),
                Discarded::Memory(address) => call!(self.api, mcFree(address)),
                Discarded::Pinned(address) => call!(self.api, mcFreeHost(address)),
            }
        }
        .map(|()| true)
    }
}
