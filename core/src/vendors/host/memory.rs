//! Memory of a host device: anonymous pages, up to a limit.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::env::FaultSite;
use crate::error::{Error, Result};
use crate::runtime::MemoryInfo;

use super::chaos::Chaos;

const PAGE: usize = 4096;
/// A transparent huge page on x86-64 and on arm64 with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;

/// Memory up to a limit: the memory of one device, or the pinned memory of the host.
pub(super) struct HostMemory {
    /// Distinguishes memories in [`Chaos`].
    lane: u64,
    total: u64,
    used: AtomicU64,
    calls: AtomicU64,
    chaos: Chaos,
    /// The hint of an out-of-memory error.
    remedy: &'static str,
}

impl HostMemory {
    pub(super) fn of_device(device: usize, total: u64, chaos: Chaos) -> Self {
        let remedy = "free memory, or raise FLAGOS_HOST_MEMORY";
        Self::new(device as u64, total, chaos, remedy)
    }

    /// Pinned memory, at most `total` bytes: the system cannot take pinned pages back.
    pub(super) fn pinned(total: u64, chaos: Chaos) -> Self {
        let remedy = "free pinned tensors, or pin less; sizes are rounded up to a power of two";
        Self::new(u64::MAX, total, chaos, remedy)
    }

    fn new(lane: u64, total: u64, chaos: Chaos, remedy: &'static str) -> Self {
        let (used, calls) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            lane,
            total,
            used,
            calls,
            chaos,
            remedy,
        }
    }

    pub(super) fn info(&self) -> MemoryInfo {
        let used = self.used.load(Ordering::Relaxed);
        MemoryInfo {
            free: self.total.saturating_sub(used),
            total: self.total,
        }
    }

    pub(super) fn alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.chaos.fails(FaultSite::Alloc, self.lane, call) {
            return Err(injected(call));
        }
        let reserve = |used: u64| used.checked_add(nbytes as u64).filter(|u| *u <= self.total);
        let reserved = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        if let Err(used) = reserved {
            let message = format!("{nbytes} bytes with {used} of {} in use", self.total);
            return Err(Error::out_of_memory("alloc", message).with_hint(self.remedy));
        }
        map(nbytes).inspect_err(|_| {
            self.used.fetch_sub(nbytes as u64, Ordering::Relaxed);
        })
    }

    /// # Safety
    /// As `Vendor::free`.
    pub(super) unsafe fn free(&self, address: NonNull<u8>, nbytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { unmap(address, nbytes) };
        self.used.fetch_sub(nbytes as u64, Ordering::Relaxed);
    }
}

/// The error of an allocation whose failure is injected.
fn injected(call: u64) -> Error {
    Error::out_of_memory("alloc", format!("injected failure of alloc {call}"))
        .with_hint("FLAGOS_HOST_FAULT asks for it")
}

fn rounded(nbytes: usize) -> Option<usize> {
    Some(nbytes.checked_add(PAGE - 1)? & !(PAGE - 1))
}

/// Maps zeroed pages. A range of at least a huge page begins at a huge page, and asks the kernel for huge pages.
fn map(nbytes: usize) -> Result<NonNull<u8>> {
    let mapped = rounded(nbytes).and_then(|size| {
        if size < HUGE_PAGE {
            return map_pages(size);
        }
        let padded = size.checked_add(HUGE_PAGE)?;
        let start = map_pages(padded)?;
        let skip = start.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `skip` is below `HUGE_PAGE`, so all three parts lie in the mapping just made; the
        // first and the last are given back, nothing refers to them.
        unsafe {
            let aligned = start.add(skip);
            unmap_pages(start, skip);
            unmap_pages(aligned.add(size), HUGE_PAGE - skip);
            // The call only advises: a kernel without huge pages refuses, and nothing changes.
            libc::madvise(aligned.as_ptr().cast(), size, libc::MADV_HUGEPAGE);
            Some(aligned)
        }
    });
    mapped.ok_or_else(|| {
        let source = std::io::Error::last_os_error();
        let message = format!("the system refused {nbytes} bytes");
        Error::out_of_memory("alloc", message)
            .with_hint("free memory")
            .with_source(source)
    })
}

/// # Safety
/// The range came from [`map`] with the same size, and nothing uses it.
unsafe fn unmap(address: NonNull<u8>, nbytes: usize) {
    if let Some(size) = rounded(nbytes) {
        // SAFETY: the caller's promise.
        unsafe { unmap_pages(address, size) };
    }
}

fn map_pages(size: usize) -> Option<NonNull<u8>> {
    let size = NonZeroUsize::new(size)?.get();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing existing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED)
        .then(|| NonNull::new(start.cast()))
        .flatten()
}

/// # Safety
/// Whole pages that nothing uses.
unsafe fn unmap_pages(address: NonNull<u8>, size: usize) {
    if size == 0 {
        return;
    }
    // SAFETY: the caller's promise.
    let code = unsafe { libc::munmap(address.as_ptr().cast(), size) };
    if code != 0 {
        tracing::error!(size, error = %std::io::Error::last_os_error(), "munmap failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_pinned_than_there_is() {
        let memory = HostMemory::pinned(1 << 20, Chaos::default());
        let half = memory.alloc(1 << 19).expect("there is room");
        let error = memory.alloc((1 << 19) + 1).expect_err("more than there is");
        assert_eq!(error.kind(), crate::ErrorKind::OutOfMemory);
        let hint = error.hint().unwrap_or_default();
        assert!(hint.contains("pinned") && !hint.contains("FLAGOS_HOST_MEMORY"));
        // SAFETY: both came from `alloc` with these sizes, and nothing uses them.
        unsafe {
            memory.free(half, 1 << 19);
            let all = memory.alloc(1 << 20).expect("the first one is free again");
            memory.free(all, 1 << 20);
        }
    }
}
