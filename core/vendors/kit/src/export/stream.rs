//! The functions of the table for streams.

use std::ffi::c_void;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Stream;

use super::handle::{Instance, StreamHandle, device};
use super::outcome::{answer, give, status};
use flagos_core::vendors::library::*;

// The functions below get a live instance or stream, and valid outputs.

/// `FlagosVendor::stream_default`.
pub(super) unsafe extern "C" fn stream_default(
    instance: *mut FlagosVendorInstance,
    index: i32,
    out: *mut *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: a live instance and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let device = device(index);
            let stream = instance.vendor.default_stream(device)?;
            let mut defaults = instance.defaults.lock();
            let handle = defaults
                .entry(device)
                .or_insert_with(|| StreamHandle::owned(instance, stream));
            Ok(std::ptr::from_mut(&mut **handle).cast())
        })
    }
}

/// `FlagosVendor::stream_create`.
pub(super) unsafe extern "C" fn stream_create(
    instance: *mut FlagosVendorInstance,
    index: i32,
    priority: i32,
    out: *mut *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: a live instance and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let stream = instance.vendor.stream(device(index), priority)?;
            Ok(Box::into_raw(StreamHandle::owned(instance, stream)).cast())
        })
    }
}

/// `FlagosVendor::stream_external`.
pub(super) unsafe extern "C" fn stream_external(
    instance: *mut FlagosVendorInstance,
    index: i32,
    handle: *mut c_void,
    out: *mut *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: a live instance and a valid output; the user keeps the handle alive.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let stream = instance.vendor.external_stream(device(index), handle)?;
            Ok(Box::into_raw(StreamHandle::owned(instance, stream)).cast())
        })
    }
}

/// `FlagosVendor::stream_destroy`.
pub(super) unsafe extern "C" fn stream_destroy(handle: *mut FlagosVendorStream) -> i32 {
    // SAFETY: made by `stream_create` or `stream_external`, and not used any more.
    let handle = unsafe { Box::from_raw(handle.cast::<StreamHandle>()) };
    let description = handle.description;
    status(description, || {
        drop(handle);
        Ok(())
    })
}

/// `FlagosVendor::stream_query`.
pub(super) unsafe extern "C" fn stream_query(
    handle: *mut FlagosVendorStream,
    out: *mut i32,
) -> i32 {
    // SAFETY: a live stream and a valid output.
    unsafe {
        let handle = StreamHandle::of(handle);
        give(handle.description, out, || {
            handle.stream.query().map(i32::from)
        })
    }
}

/// `FlagosVendor::stream_is_idle`.
pub(super) unsafe extern "C" fn stream_is_idle(handle: *mut FlagosVendorStream) -> i32 {
    // SAFETY: a live stream.
    let handle = unsafe { StreamHandle::of(handle) };
    answer(0, || handle.stream.is_idle().into())
}

/// `FlagosVendor::stream_sync`.
pub(super) unsafe extern "C" fn stream_sync(handle: *mut FlagosVendorStream) -> i32 {
    // SAFETY: a live stream.
    let handle = unsafe { StreamHandle::of(handle) };
    status(handle.description, || handle.stream.sync())
}

/// `FlagosVendor::stream_copy`. Vendors of Rust tell memory by its address.
pub(super) unsafe extern "C" fn stream_copy(
    handle: *mut FlagosVendorStream,
    to: *mut c_void,
    from: *const c_void,
    nbytes: usize,
    _kind: i32,
) -> i32 {
    // SAFETY: a live stream; both ranges stay valid until the copy has run.
    unsafe {
        let handle = StreamHandle::of(handle);
        status(handle.description, || {
            handle.stream.copy(to.cast(), from.cast(), nbytes)
        })
    }
}

/// `FlagosVendor::stream_host_function`.
pub(super) unsafe extern "C" fn stream_host_function(
    handle: *mut FlagosVendorStream,
    function: FlagosVendorHostFunction,
    context: *mut c_void,
) -> i32 {
    // SAFETY: a live stream.
    let handle = unsafe { StreamHandle::of(handle) };
    status(handle.description, || {
        let function = function.ok_or_else(|| {
            Error::invalid_argument("stream_host_function", "the function is NULL")
        })?;
        // SAFETY: the host lets the function be called from another thread, once.
        unsafe { handle.stream.launch(function, context) }
    })
}

/// `FlagosVendor::stream_native_handle`.
pub(super) unsafe extern "C" fn stream_native_handle(
    handle: *mut FlagosVendorStream,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: a live stream and a valid output.
    unsafe {
        let handle = StreamHandle::of(handle);
        give(handle.description, out, || native(&*handle.stream))
    }
}

fn native(stream: &dyn Stream) -> Result<*mut c_void> {
    stream.native_handle().ok_or_else(|| {
        Error::unsupported(
            "stream_native_handle",
            "the stream has no handle of its own",
        )
    })
}
