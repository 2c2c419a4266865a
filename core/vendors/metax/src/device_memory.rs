//! The memory of a device.

use std::ptr::{NonNull, null_mut};

use flagos_core::error::Result;
use flagos_core::runtime::{DeviceProperties, Place};
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{Discarded, DriverDevice as _, DriverMemory};

use super::api::HOST_DEFAULT;
use super::device::Device;
use super::properties;

impl DriverMemory for Device {
    fn properties(&self) -> Result<&DeviceProperties> {
        if let Some(known) = self.properties.get() {
            return Ok(known);
        }
        let properties = properties::describe(self)?;
        Ok(self.properties.get_or_init(|| properties))
    }

    fn free_memory(&self) -> Result<usize> {
        properties::memory(self.api).map(|(free, _)| free)
    }

    fn alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        let give = |nbytes| {
            let mut address = null_mut();
            // SAFETY: a valid output; the device is current.
            unsafe { call!(self.api, mcMalloc(&mut address, nbytes)) }.map(|()| address)
        };
        // SAFETY: just allocated.
        let take_back = |address| unsafe { call!(self.api, mcFree(address)) };
        let place = Place::Device(self.index);
        self.allocations.alloc(nbytes, place, give, take_back)
    }

    fn alloc_pinned(&self, nbytes: usize) -> Result<NonNull<u8>> {
        let give = |nbytes| {
            let mut address = null_mut();
            // SAFETY: a valid output.
            unsafe { call!(self.api, mcMallocHost(&mut address, nbytes, HOST_DEFAULT)) }
                .map(|()| address)
        };
        // SAFETY: just allocated.
        let take_back = |address| unsafe { call!(self.api, mcFreeHost(address)) };
        self.allocations
            .alloc(nbytes, Place::Pinned, give, take_back)
    }

    fn free(&self, address: NonNull<u8>) {
        self.discard(Discarded::Memory(self.allocations.forget(address)));
    }

    fn free_pinned(&self, address: NonNull<u8>) {
        self.discard(Discarded::Pinned(self.allocations.forget(address)));
    }
}
