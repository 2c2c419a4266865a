//! Allocations of a vendor whose library tells too little of an address: where each lies, and its alignment.

use std::ffi::c_void;
use std::ptr::NonNull;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::ranges::Ranges;
use flagos_core::runtime::{ALIGNMENT, Place};

/// An allocation of the library.
#[derive(Debug, Clone, Copy)]
pub struct Allocation {
    /// Where it lies.
    pub place: Place,
    /// The address that the library gave.
    pub base: usize,
    /// The bytes from there to the end.
    pub nbytes: usize,
}

/// The allocations of all devices.
#[derive(Default)]
pub struct Allocations(Ranges<Allocation>);

impl Allocations {
    /// Allocates by `give`, at a multiple of [`ALIGNMENT`], whatever multiple the library promises.
    pub fn alloc(
        &self,
        nbytes: usize,
        place: Place,
        give: impl FnMut(usize) -> Result<*mut c_void>,
        take_back: impl FnMut(*mut c_void) -> Result<()>,
    ) -> Result<NonNull<u8>> {
        let (address, base) = aligned(nbytes, give, take_back)?;
        self.note(address, nbytes, place, base);
        Ok(address)
    }

    /// Adds an allocation, or memory of another process.
    pub fn note(&self, address: NonNull<u8>, nbytes: usize, place: Place, base: *mut c_void) {
        let (start, base) = (address.as_ptr() as usize, base as usize);
        let allocation = Allocation {
            place,
            base,
            nbytes: start + nbytes - base,
        };
        self.0.insert(start, nbytes, allocation);
    }

    /// The allocation in which an address lies.
    pub fn find(&self, address: *const u8) -> Option<Allocation> {
        self.0.find(address as usize)
    }

    /// Forgets an allocation. Returns the address that the library gave.
    pub fn forget(&self, address: NonNull<u8>) -> *mut c_void {
        let start = address.as_ptr() as usize;
        let found = self.0.find(start);
        self.0.remove(start);
        found.map_or(address.as_ptr().cast(), |found| found.base as *mut c_void)
    }
}

/// What `give` allocates, at a multiple of [`ALIGNMENT`]: the address, and the one that was given. A library promises
/// less, and usually gives more.
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
        .ok_or_else(|| Error::device("alloc", "the vendor's library gave the address 0"))?;
    Ok((address, base))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_aligned_whatever_the_library_gives() {
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
            let known = Allocations::default();
            let address = known
                .alloc(100, Place::Pinned, give, take_back)
                .expect("given");
            assert_eq!(address.as_ptr() as usize, wanted);
            let kept = if second == 0 { first } else { second };
            let found = known
                .find(address.as_ptr().wrapping_add(99))
                .expect("within it");
            assert_eq!((found.base, found.place), (kept, Place::Pinned));
            assert_eq!(back, if second == 0 { vec![] } else { vec![first] });
            assert_eq!(known.forget(address) as usize, kept);
            assert!(known.find(address.as_ptr()).is_none());
        }
    }
}
