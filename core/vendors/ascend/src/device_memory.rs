//! The memory of a device.

use std::ptr::NonNull;

use flagos_core::error::Result;
use flagos_core::runtime::DeviceProperties;
use flagos_vendor_kit::driver::{DriverDevice as _, DriverMemory};

use super::device::{Device, Discarded};
use super::properties;

impl DriverMemory for Device {
    fn properties(&self) -> Result<&DeviceProperties> {
        if let Some(known) = self.properties.get() {
            return Ok(known);
        }
        Self::refuse("properties")?;
        let properties = properties::describe(self)?;
        Ok(self.properties.get_or_init(|| properties))
    }

    fn free_memory(&self) -> Result<usize> {
        properties::memory(self.api).map(|(free, _)| free)
    }

    fn alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        self.memory.alloc(self.api, self.index, nbytes)
    }

    fn alloc_pinned(&self, nbytes: usize) -> Result<NonNull<u8>> {
        self.memory.alloc_pinned(self.api, nbytes)
    }

    fn free(&self, address: NonNull<u8>) {
        self.discard(Discarded::Memory(self.memory.forget(address)));
    }

    fn free_pinned(&self, address: NonNull<u8>) {
        self.discard(Discarded::Pinned(self.memory.forget(address)));
    }
}
