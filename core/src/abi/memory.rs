//! Entries about device memory.

use std::ffi::{c_char, c_void};

use crate::error::{Error, Result};
use crate::runtime::{BlockHandle, CachingAllocator, Stat, StatArray, Vendor, process};

use super::status::{device_index, give, give_string, null, quietly, status};
use super::types::{FlagosMemoryStats, FlagosStat, FlagosStatArray};

#[inline]
fn memory(operation: &'static str) -> Result<&'static CachingAllocator<dyn Vendor>> {
    process::require(operation).map(|runtime| runtime.memory())
}

/// The handle in a caller's pointer, which is never dereferenced.
#[inline]
fn handle(block: *mut c_void) -> Result<BlockHandle> {
    BlockHandle::from_bits(block as u64)
        .ok_or_else(|| Error::invalid_argument("mem_block", "this is not a block of mem_alloc"))
}

/// `FlagosApi::mem_alloc`.
///
/// # Safety
/// `data` and `block` are NULL or valid for writing.
pub(super) unsafe extern "C" fn alloc(
    device: i32,
    stream: u64,
    nbytes: usize,
    data: *mut *mut c_void,
    block: *mut *mut c_void,
) -> i32 {
    status(|| {
        if data.is_null() || block.is_null() {
            return Err(null("an output of mem_alloc"));
        }
        let found = memory("mem_alloc")?.alloc(device_index(device)?, stream, nbytes)?;
        let (address, bits) = match found {
            Some(found) => (found.data.as_ptr(), found.block.to_bits()),
            None => (std::ptr::null_mut(), 0),
        };
        // SAFETY: the caller's promise.
        unsafe {
            give(data, address.cast())?;
            give(block, bits as usize as *mut c_void)
        }
    })
}

/// `FlagosApi::mem_alloc_at`.
///
/// # Safety
/// `data` is NULL or valid for writing.
pub(super) unsafe extern "C" fn alloc_at(
    device: i32,
    stream: u64,
    nbytes: usize,
    data: *mut *mut c_void,
) -> i32 {
    status(|| {
        if data.is_null() {
            return Err(null("an output of mem_alloc_at"));
        }
        let memory = memory("mem_alloc_at")?;
        let found = memory.alloc(device_index(device)?, stream, nbytes)?;
        let address = found.map_or(std::ptr::null_mut(), |found| found.data.as_ptr());
        if let Some(found) = found {
            if let Err(error) = process::live().insert(address as usize, found.block) {
                memory.free(found.block)?;
                return Err(error);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { give(data, address.cast()) }
    })
}

/// `FlagosApi::mem_free_at`.
pub(super) extern "C" fn free_at(data: *mut c_void) -> i32 {
    let Some(block) = process::live().remove(data as usize) else {
        return 0;
    };
    if let Some(runtime) = process::get() {
        quietly(|| runtime.memory().free(block));
    }
    1
}

/// `FlagosApi::mem_record_stream_at`.
pub(super) extern "C" fn record_stream_at(data: *const c_void, stream: u64) -> i32 {
    status(|| match process::live().find(data as usize) {
        Some(block) => memory("mem_record_stream_at")?.record_stream(block, block.device(), stream),
        None => Ok(()),
    })
}

/// `FlagosApi::mem_record_stream_of`.
pub(super) extern "C" fn record_stream_of(data: *const c_void, device: i32, stream: u64) -> i32 {
    status(|| match process::live().find(data as usize) {
        Some(block) => {
            memory("mem_record_stream_of")?.record_stream(block, device_index(device)?, stream)
        }
        None => Ok(()),
    })
}

/// `FlagosApi::mem_free`.
pub(super) extern "C" fn free(block: *mut c_void) {
    // A forked child has no runtime: the parent's locks may be held, and its memory is a copy.
    let Some(runtime) = process::get() else {
        return;
    };
    if !block.is_null() {
        quietly(|| runtime.memory().free(handle(block)?));
    }
}

/// `FlagosApi::mem_record_stream`.
pub(super) extern "C" fn record_stream(block: *mut c_void, stream: u64) -> i32 {
    status(|| {
        let block = handle(block)?;
        memory("mem_record_stream")?.record_stream(block, block.device(), stream)
    })
}

/// `FlagosApi::mem_empty_cache`.
pub(super) extern "C" fn empty_cache(device: i32) -> i32 {
    status(|| {
        let runtime = process::require("mem_empty_cache")?;
        if device != -1 {
            return runtime.memory().empty_cache(device_index(device)?);
        }
        for device in 0..runtime.vendor().device_count() {
            runtime.memory().empty_cache(device)?;
        }
        runtime.pinned().empty_cache();
        Ok(())
    })
}

/// `FlagosApi::mem_stats`.
///
/// # Safety
/// `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn stats(device: i32, out: *mut FlagosMemoryStats) -> i32 {
    status(|| {
        let stats = memory("mem_stats")?.stats(device_index(device)?)?;
        let stats = FlagosMemoryStats {
            allocation: array(stats.allocation),
            segment: array(stats.segment),
            active: array(stats.active),
            inactive_split: array(stats.inactive_split),
            allocated_bytes: array(stats.allocated_bytes),
            reserved_bytes: array(stats.reserved_bytes),
            active_bytes: array(stats.active_bytes),
            inactive_split_bytes: array(stats.inactive_split_bytes),
            requested_bytes: array(stats.requested_bytes),
            num_alloc_retries: stats.num_alloc_retries,
            num_ooms: stats.num_ooms,
            num_sync_all_streams: stats.num_sync_all_streams,
            num_device_alloc: stats.num_device_alloc,
            num_device_free: stats.num_device_free,
        };
        // SAFETY: the caller's promise.
        unsafe { give(out, stats) }
    })
}

pub(super) fn stat(from: Stat) -> FlagosStat {
    FlagosStat {
        current: from.current,
        peak: from.peak,
        allocated: from.allocated,
        freed: from.freed,
    }
}

fn array(from: StatArray) -> FlagosStatArray {
    FlagosStatArray {
        all: stat(from.all),
        small_pool: stat(from.small),
        large_pool: stat(from.large),
    }
}

/// `FlagosApi::mem_reset_peak`.
pub(super) extern "C" fn reset_peak(device: i32) -> i32 {
    status(|| memory("mem_reset_peak")?.reset_peak(device_index(device)?))
}

/// `FlagosApi::mem_reset_accumulated`.
pub(super) extern "C" fn reset_accumulated(device: i32) -> i32 {
    status(|| memory("mem_reset_accumulated")?.reset_accumulated(device_index(device)?))
}

/// `FlagosApi::mem_info`.
///
/// # Safety
/// `free` and `total` are NULL or valid for writing.
pub(super) unsafe extern "C" fn info(device: i32, free: *mut usize, total: *mut usize) -> i32 {
    status(|| {
        let info = memory("mem_info")?.info(device_index(device)?)?;
        // SAFETY: the caller's promise.
        unsafe {
            give(free, info.free as usize)?;
            give(total, info.total as usize)
        }
    })
}

/// `FlagosApi::mem_set_fraction`.
pub(super) extern "C" fn set_fraction(device: i32, fraction: f64) -> i32 {
    status(|| memory("mem_set_fraction")?.set_fraction(device_index(device)?, fraction))
}

/// `FlagosApi::mem_snapshot_json`.
///
/// # Safety
/// `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn snapshot_json(device: i32, out: *mut *mut c_char) -> i32 {
    status(|| {
        let json = memory("mem_snapshot_json")?.snapshot_json(device_index(device)?)?;
        // SAFETY: the caller's promise.
        unsafe { give_string(out, json) }
    })
}

/// `FlagosApi::mem_device_of`.
pub(super) extern "C" fn device_of(ptr: *const c_void) -> i32 {
    let runtime = process::get();
    let device = runtime.and_then(|runtime| runtime.memory().device_of(ptr.cast()));
    device
        .and_then(|device| i32::try_from(device).ok())
        .unwrap_or(-1)
}
