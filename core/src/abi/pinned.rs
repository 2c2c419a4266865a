//! Entries about pinned memory.

use std::ffi::c_void;

use crate::runtime::{DurationStat, process};

use super::memory::stat;
use super::status::{device_index, give, null, quietly, status};
use super::types::{FlagosDurationStat, FlagosPinnedStats};

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
pub(super) extern "C" fn record(ptr: *const c_void, device: i32, stream: u64) -> i32 {
    status(|| {
        let pinned = process::require("pinned_record")?.pinned();
        pinned.record_stream(ptr as usize, device_index(device)?, stream)
    })
}

/// `FlagosApi::pinned_stats`.
///
/// # Safety
/// `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn stats(out: *mut FlagosPinnedStats) -> i32 {
    status(|| {
        let stats = process::require("pinned_stats")?.pinned().stats();
        let stats = FlagosPinnedStats {
            active_requests: stat(stats.active_requests),
            active_bytes: stat(stats.active_bytes),
            allocations: stat(stats.allocations),
            allocated_bytes: stat(stats.allocated_bytes),
            host_alloc_time: duration(stats.host_alloc_time),
            host_free_time: duration(stats.host_free_time),
            bucket_allocation: stats.bucket_allocation,
        };
        // SAFETY: the caller's promise.
        unsafe { give(out, stats) }
    })
}

fn duration(from: DurationStat) -> FlagosDurationStat {
    FlagosDurationStat {
        total: from.total,
        max: from.max,
        min: from.min,
        count: from.count,
    }
}

/// `FlagosApi::pinned_reset_peak`.
pub(super) extern "C" fn reset_peak() -> i32 {
    status(|| {
        process::require("pinned_reset_peak")?.pinned().reset_peak();
        Ok(())
    })
}

/// `FlagosApi::pinned_reset_accumulated`.
pub(super) extern "C" fn reset_accumulated() -> i32 {
    status(|| {
        let pinned = process::require("pinned_reset_accumulated")?.pinned();
        pinned.reset_accumulated();
        Ok(())
    })
}
