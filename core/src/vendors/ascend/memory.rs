//! Allocations: their alignment, and what is known of an address.

use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};

use crate::error::{Error, Result};
use crate::runtime::ranges::Ranges;
use crate::runtime::ALIGNMENT;

use super::api::{
    Api, PointerAttributes, HUGE_FIRST, LOCATION_HOST, LOCATION_UNREGISTERED, SUCCESS,
};
use super::error::{acl, check};

/// Where an address lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On this device.
    Device(usize),
    /// In page-locked memory of the host.
    Pinned,
    /// In any other memory of the host.
    Ordinary,
}

impl Place {
    /// The device, of device memory.
    pub(super) fn device(self) -> Option<usize> {
        match self {
            Self::Device(device) => Some(device),
            Self::Pinned | Self::Ordinary => None,
        }
    }
}

/// The allocations of all devices.
#[derive(Default)]
pub(super) struct Memory(Ranges<Allocation>);

/// An allocation of the runtime.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allocation {
    pub(super) place: Place,
    /// The address that the runtime gave.
    pub(super) base: usize,
    /// The bytes from there to the end.
    pub(super) nbytes: usize,
}

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

/// What `give` allocates, at a multiple of [`ALIGNMENT`]: the address, and the one that was given. The runtime promises
/// multiples of 64 alone, and usually gives better ones.
fn aligned(
    nbytes: usize,
    mut give: impl FnMut(usize) -> Result<*mut c_void>,
    mut take_back: impl FnMut(*mut c_void) -> Result<()>,
) -> Result<(NonNull<u8>, *mut c_void)> {
    let mut base = give(nbytes)?;
    if base as usize % ALIGNMENT != 0 {
        take_back(base)?;
        base = give(nbytes.saturating_add(ALIGNMENT))?;
    }
    let offset = base.align_offset(ALIGNMENT);
    let address = base.cast::<u8>().wrapping_add(offset);
    let address = NonNull::new(address)
        .ok_or_else(|| Error::device("alloc", "the ACL runtime gave the address 0"))?;
    Ok((address, base))
}

impl Memory {
    /// Allocates on a device, whose context is current.
    pub(super) fn alloc(&self, api: &Api, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        let give = |nbytes| {
            let mut address = null_mut();
            // SAFETY: a valid output.
            unsafe { acl!(api, aclrtMallocAlign32(&mut address, nbytes, HUGE_FIRST)) }
                .map(|()| address)
        };
        // SAFETY: just allocated.
        let take_back = |address| unsafe { acl!(api, aclrtFree(address)) };
        let (address, base) = aligned(nbytes, give, take_back)?;
        self.note(address, nbytes, Place::Device(device), base);
        Ok(address)
    }

    /// Allocates page-locked memory. A context is current.
    pub(super) fn alloc_pinned(&self, api: &Api, nbytes: usize) -> Result<NonNull<u8>> {
        let give = |nbytes| {
            let mut address = null_mut();
            // SAFETY: a valid output.
            unsafe { acl!(api, aclrtMallocHost(&mut address, nbytes)) }.map(|()| address)
        };
        // SAFETY: just allocated.
        let take_back = |address| unsafe { acl!(api, aclrtFreeHost(address)) };
        let (address, base) = aligned(nbytes, give, take_back)?;
        self.note(address, nbytes, Place::Pinned, base);
        Ok(address)
    }

    /// Adds an allocation, or memory of another process.
    pub(super) fn note(
        &self,
        address: NonNull<u8>,
        nbytes: usize,
        place: Place,
        base: *mut c_void,
    ) {
        let (start, base) = (address.as_ptr() as usize, base as usize);
        let allocation = Allocation {
            place,
            base,
            nbytes: start + nbytes - base,
        };
        self.0.insert(start, nbytes, allocation);
    }

    /// The allocation in which an address lies.
    pub(super) fn find(&self, address: NonNull<u8>) -> Option<Allocation> {
        self.0.find(address.as_ptr() as usize)
    }

    /// Forgets an allocation. Returns the address that the runtime gave.
    pub(super) fn forget(&self, address: NonNull<u8>) -> *mut c_void {
        let start = address.as_ptr() as usize;
        let found = self.0.find(start);
        self.0.remove(start);
        found.map_or(address.as_ptr().cast(), |found| found.base as *mut c_void)
    }

    /// Where an address lies: for memory of other libraries the runtime knows. A context is current.
    pub(super) fn place(&self, api: &Api, address: *const u8) -> Result<Place> {
        if let Some(found) = self.0.find(address as usize) {
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
                check(api, "aclrtPointerGetAttributes", code)?;
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

    #[test]
    fn addresses_are_aligned_whatever_the_runtime_gives() {
        for (first, second, wanted) in [
            (0x1000, 0, 0x1000),
            (0x1040, 0x2000, 0x2000),
            (0x1040, 0x2040, 0x2200),
        ] {
            let mut given = [(first, 100), (second, 100 + ALIGNMENT)].into_iter();
            let mut back = Vec::new();
            let give = |nbytes| {
                let (address, asked) = given.next().expect("two at most");
                assert_eq!(nbytes, asked);
                Ok(address as *mut c_void)
            };
            let take_back = |address: *mut c_void| {
                back.push(address as usize);
                Ok(())
            };
            let (address, base) = aligned(100, give, take_back).expect("given");
            assert_eq!(address.as_ptr() as usize, wanted);
            let kept = if second == 0 { first } else { second };
            assert_eq!(base as usize, kept);
            assert_eq!(back, if second == 0 { vec![] } else { vec![first] });
        }
    }
}
