//! Entries about pinned memory.

use std::ffi::c_void;

use crate::runtime::process;

use super::status::{device_index, give, null, quietly, status};

/// `FlagosApi::pinned_alloc`.
///
/// # Safety
/// `data` and `block` are NULL or valid for writing.
pub(super) unsafe extern "C" fn alloc(
    nbytes: usize,
    data: *mut *mut c_void,
    block: *mut *mut c_void,
) -> i32 {
    status(|| {
        if data.is_null() || block.is_null() {
            return Err(null("an output of pinned_alloc"));
        }
        let found = process::require("pinned_alloc")?.pinned().alloc(nbytes)?;
        let (address, bits) = match found {
            Some(found) => (found.data.as_ptr(), found.block),
            None => (std::ptr::null_mut(), 0),
        };
        // SAFETY: the caller's promise.
        unsafe {
            give(data, address.cast())?;
            give(block, bits as *mut c_void)
        }
    })
}

/// `FlagosApi::pinned_free`.
pub(super) extern "C" fn free(block: *mut c_void) {
    // As for device memory, nothing is given back in a forked child.
    let Some(runtime) = process::get() else {
        return;
    };
    if !block.is_null() {
        quietly(|| runtime.pinned().free(block as usize));
    }
}

/// `FlagosApi::is_pinned`.
pub(super) extern "C" fn is_pinned(ptr: *const c_void) -> i32 {
    process::get().map_or(0, |runtime| {
        i32::from(runtime.pinned().is_pinned(ptr.cast()))
    })
}

/// `FlagosApi::pinned_record`.
pub(super) extern "C" fn record(block: *mut c_void, device: i32, stream: u64) -> i32 {
    status(|| {
        let pinned = process::require("pinned_record")?.pinned();
        pinned.record_stream(block as usize, device_index(device)?, stream)
    })
}
