//! Allocations: their alignment, and what is known of an address.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use flagos_core::error::Result;
pub(super) use flagos_core::runtime::Place;
use flagos_vendor_kit::allocations::Allocations;
use flagos_vendor_kit::call;

use super::api::{
    Api, HUGE_FIRST, LOCATION_HOST, LOCATION_UNREGISTERED, PointerAttributes, SUCCESS,
};

/// The allocations of all devices.
#[derive(Default)]
pub(super) struct Memory(Allocations);

/// The bytes by which kernels may read beyond the end of a tensor's memory, and which therefore have to be mapped. Chips
/// from Ascend950 on do not, with CANN 9.1 or newer.
pub(super) fn padding(chip: Option<&str>, cann: Option<i32>) -> usize {
    const CANN_9_1: i32 = 90_100_000;
    let generation = chip.and_then(|name| {
        let number = name.strip_prefix("Ascend")?;
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        number[..digits].parse::<u32>().ok()
    });
    let exact = generation.is_some_and(|generation| generation >= 950);
    if exact && cann.is_some_and(|cann| cann >= CANN_9_1) {
        return 0;
    }
    32
}

impl Memory {
    /// Allocates on a device, whose context is current.
    pub(super) fn alloc(&self, api: &Api, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        let give = |nbytes| {
            let mut address = null_mut();
            // SAFETY: a valid output.
            unsafe { call!(api, aclrtMallocAlign32(&mut address, nbytes, HUGE_FIRST)) }
                .map(|()| address)
        };
        // SAFETY: just allocated.
        let take_back = |address| unsafe { call!(api, aclrtFree(address)) };
        self.0.alloc(nbytes, Place::Device(device), give, take_back)
    }

    /// Allocates page-locked memory. A context is current.
    pub(super) fn alloc_pinned(&self, api: &Api, nbytes: usize) -> Result<NonNull<u8>> {
        let give = |nbytes| {
            let mut address = null_mut();
            // SAFETY: a valid output.
            unsafe { call!(api, aclrtMallocHost(&mut address, nbytes)) }.map(|()| address)
        };
        // SAFETY: just allocated.
        let take_back = |address| unsafe { call!(api, aclrtFreeHost(address)) };
        self.0.alloc(nbytes, Place::Pinned, give, take_back)
    }

    /// What is known without the runtime.
    pub(super) fn allocations(&self) -> &Allocations {
        &self.0
    }

    /// As [`Allocations::forget`].
    pub(super) fn forget(&self, address: NonNull<u8>) -> *mut c_void {
        self.0.forget(address)
    }

    /// Where an address lies: for memory of other libraries the runtime knows. A context is current.
    pub(super) fn place(&self, api: &Api, address: *const u8) -> Result<Place> {
        if let Some(found) = self.0.find(address) {
            return Ok(found.place);
        }
        let mut attributes = PointerAttributes::default();
        // SAFETY: a valid output; the address is only looked up.
        let code = unsafe { (api.aclrtPointerGetAttributes)(address.cast(), &mut attributes) };
        match (code, attributes.location) {
            (SUCCESS, LOCATION_HOST) => Ok(Place::Pinned),
            (SUCCESS, LOCATION_UNREGISTERED) => Ok(Place::Ordinary),
            (SUCCESS, _) => Ok(Place::Device(attributes.device as usize)),
            (code, _) => {
                api.check("aclrtPointerGetAttributes", code)?;
                Ok(Place::Ordinary)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_read_beyond_the_end_on_all_but_the_newest() {
        assert_eq!(padding(None, None), 32);
        assert_eq!(padding(Some("Ascend910B3"), Some(90_100_000)), 32);
        assert_eq!(padding(Some("Ascend310P3"), Some(90_200_000)), 32);
        assert_eq!(padding(Some("Ascend950PR_9599"), Some(90_000_000)), 32);
        assert_eq!(padding(Some("Ascend950PR_9599"), None), 32);
        assert_eq!(padding(Some("Ascend950PR_9599"), Some(90_100_000)), 0);
        assert_eq!(padding(Some("Kirin"), Some(90_100_000)), 32);
    }
}
