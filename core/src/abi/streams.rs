//! Entries about streams.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::error::Result;
use crate::runtime::{HostFn, Stream, process};

use super::status::{device_index, give, null, status};

/// The stream a caller named. Fails with a failure of what was posted there.
#[inline]
pub(super) fn stream(operation: &'static str, device: i32, id: u64) -> Result<&'static dyn Stream> {
    let found = stream_as_it_is(operation, device, id)?;
    found.told()?;
    Ok(found)
}

/// The stream a caller named.
#[inline]
pub(super) fn stream_as_it_is(
    operation: &'static str,
    device: i32,
    id: u64,
) -> Result<&'static dyn Stream> {
    process::require(operation)?
        .streams()
        .get(device_index(device)?, id)
}

/// The handle of a stream in the vendor's own library, such as an `aclrtStream`, which lives as long as the process;
/// `None` for a vendor whose streams have none.
///
/// # Errors
/// When there is no such device or stream, or the vendor is not open.
pub fn native_stream(device: i32, id: u64) -> Result<Option<*mut c_void>> {
    Ok(stream("native_stream", device, id)?.native_handle())
}

/// `FlagosApi::stream_create`.
///
/// # Safety
/// `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn create(device: i32, priority: i32, out: *mut u64) -> i32 {
    status(|| {
        let streams = process::require("stream_create")?.streams();
        let id = streams.create(device_index(device)?, priority)?;
        // SAFETY: the caller's promise.
        unsafe { give(out, id) }
    })
}

/// `FlagosApi::stream_query`.
///
/// # Safety
/// `idle` is NULL or valid for writing.
pub(super) unsafe extern "C" fn query(device: i32, id: u64, idle: *mut i32) -> i32 {
    status(|| {
        if idle.is_null() {
            return Err(null("an output of stream_query"));
        }
        let stream = stream_as_it_is("stream_query", device, id)?;
        stream.flush()?;
        let now = stream.query()?;
        // SAFETY: the caller's promise.
        unsafe { give(idle, i32::from(now)) }
    })
}

/// `FlagosApi::stream_sync`.
pub(super) extern "C" fn sync(device: i32, id: u64) -> i32 {
    status(|| {
        let stream = stream_as_it_is("stream_sync", device, id)?;
        stream.flush()?;
        stream.sync()
    })
}

/// `FlagosApi::device_sync`.
pub(super) extern "C" fn device_sync(device: i32) -> i32 {
    status(|| {
        let vendor = process::require("device_sync")?.vendor();
        vendor.flush()?;
        vendor.device_sync(device_index(device)?)
    })
}

/// `FlagosApi::stream_launch`.
///
/// # Safety
/// `function` may be called once with `context` from another thread.
pub(super) unsafe extern "C" fn launch(
    device: i32,
    id: u64,
    function: HostFn,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { stream("stream_launch", device, id)?.launch(function, context) })
}

/// `FlagosApi::stream_native`.
///
/// # Safety
/// `handle` is NULL or valid for writing.
pub(super) unsafe extern "C" fn native(device: i32, id: u64, handle: *mut *mut c_void) -> i32 {
    status(|| {
        let Some(handle) = NonNull::new(handle) else {
            return Err(null("the output of stream_native"));
        };
        let native = native_stream(device, id)?.unwrap_or(std::ptr::null_mut());
        // SAFETY: the caller's promise.
        unsafe { handle.write(native) };
        Ok(())
    })
}

/// `FlagosApi::copy_async`.
///
/// # Safety
/// `nbytes` bytes from `src` are readable, and from `dst` writable, until the copy has run.
pub(super) unsafe extern "C" fn copy(
    device: i32,
    id: u64,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
) -> i32 {
    status(|| {
        if nbytes != 0 && (dst.is_null() || src.is_null()) {
            return Err(null("an address of copy_async"));
        }
        // SAFETY: the caller's promise.
        unsafe { stream("copy_async", device, id)?.copy(dst.cast(), src.cast(), nbytes) }
    })
}

/// `FlagosApi::pending`.
pub(super) extern "C" fn pending() -> *const u64 {
    std::ptr::from_ref(process::pending()).cast()
}
