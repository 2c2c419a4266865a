//! Structs of which only the first bytes exist: an access behind them faults.

use std::ffi::c_void;
use std::mem::size_of;

/// The first bytes of a `T`, followed by memory that faults.
pub struct Guarded<T> {
    pages: *mut c_void,
    length: usize,
    struct_at: *mut T,
}

impl<T> Guarded<T> {
    /// The first `nbytes` of `value`, rounded up to a multiple of 8, with `nbytes` as the `struct_size`. At least the 8 of
    /// that member exist.
    pub fn new(value: &T, nbytes: usize) -> Self {
        let there = nbytes.next_multiple_of(8).clamp(8, size_of::<T>());
        // SAFETY: asks for a number of the system.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let usable = there.next_multiple_of(page);
        let length = usable + page;
        // SAFETY: fresh memory, of which the last page is made inaccessible; the struct ends where that begins.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let pages = libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            let guard = libc::mprotect(pages.byte_add(usable), page, libc::PROT_NONE);
            assert_eq!(guard, 0);
            let struct_at = pages.byte_add(usable - there).cast::<T>();
            let bytes = std::ptr::from_ref(value).cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes, struct_at.cast(), there);
            struct_at.cast::<usize>().write(nbytes);
            Self {
                pages,
                length,
                struct_at,
            }
        }
    }

    /// The address of the struct.
    pub fn address(&self) -> *mut T {
        self.struct_at
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.pages, self.length) };
    }
}
