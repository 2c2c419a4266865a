//! The memory of a device.

use std::ffi::c_void;
use std::ptr::NonNull;

use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::{ALIGNMENT, DeviceProperties};
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{Discarded, DriverDevice as _, DriverMemory};

use super::device::Device;

impl DriverMemory for Device {
    fn properties(&self) -> Result<&DeviceProperties> {
        Ok(&self.properties)
    }

    fn free_memory(&self) -> Result<usize> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid outputs; the context is current.
        unsafe { call!(self.api, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok(free)
    }

    fn alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        let mut address = 0;
        // SAFETY: a valid output; the context is current.
        unsafe { call!(self.api, cuMemAlloc_v2(&mut address, nbytes)) }?;
        match NonNull::new(address as usize as *mut u8) {
            Some(found) if address % ALIGNMENT as u64 == 0 => Ok(found),
            _ => {
                self.discard(Discarded::Memory(address as *mut c_void));
                let message = format!("the driver gave the address {address:#x}");
                Err(Error::device("cuMemAlloc", message)
                    .with_hint("this driver does not align memory to 512 bytes: please report it"))
            }
        }
    }

    fn alloc_pinned(&self, nbytes: usize) -> Result<NonNull<u8>> {
        let mut address = std::ptr::null_mut();
        // SAFETY: a valid output; a context is current.
        unsafe {
            call!(
                self.api,
                cuMemHostAlloc(&mut address, nbytes, CU_MEMHOSTALLOC_PORTABLE)
            )
        }?;
        NonNull::new(address.cast())
            .ok_or_else(|| Error::device("cuMemHostAlloc", "the driver gave the address 0"))
    }

    fn free(&self, address: NonNull<u8>) {
        self.discard(Discarded::Memory(address.as_ptr().cast()));
    }

    fn free_pinned(&self, address: NonNull<u8>) {
        self.discard(Discarded::Pinned(address.as_ptr().cast()));
    }
}
