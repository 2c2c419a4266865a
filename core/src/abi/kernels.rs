//! Entries about the kernels of a vendor's library.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::runtime::{Posted, process};
use crate::vendors::library::{
    FlagosKernels, FlagosVendorInstance, FlagosVendorStream, inject_into_queues, queue_counts,
};

use super::init::chosen_kernels;
use super::status::{catch, fail, null, status};
use super::streams::stream_as_it_is as find;

/// `FlagosApi::kernels`.
pub(super) extern "C" fn table() -> *const FlagosKernels {
    match catch(chosen_kernels) {
        Ok(kernels) => kernels.map_or(std::ptr::null(), std::ptr::from_ref),
        Err(error) => {
            fail(&error);
            std::ptr::null()
        }
    }
}

/// `FlagosApi::stream_library`.
///
/// # Safety
/// `instance` and `handle` are NULL or valid for writing.
pub(super) unsafe extern "C" fn stream(
    device: i32,
    id: u64,
    instance: *mut *mut FlagosVendorInstance,
    handle: *mut *mut FlagosVendorStream,
) -> i32 {
    status(|| {
        let (Some(instance), Some(handle)) = (NonNull::new(instance), NonNull::new(handle)) else {
            return Err(null("an output of stream_library"));
        };
        let known = find("stream_library", device, id)?.library_handle();
        let known = known.map_or_else(no_library, Ok)?;
        // SAFETY: the caller's promise.
        unsafe {
            instance.write(known.instance.cast().as_ptr());
            handle.write(known.stream.cast().as_ptr());
        }
        Ok(())
    })
}

/// `FlagosApi::stream_post`.
///
/// # Safety
/// `operator` is NULL or a text that lives as long as the process; `run` may be called once, with `argument`, from any
/// thread.
pub(super) unsafe extern "C" fn post(
    device: i32,
    id: u64,
    operator: *const c_char,
    run: unsafe extern "C" fn(*mut c_void, i32) -> i32,
    argument: *mut c_void,
) -> i32 {
    status(|| {
        let operator = if operator.is_null() {
            "a call"
        } else {
            // SAFETY: the caller's promise.
            let name: &'static CStr = unsafe { CStr::from_ptr(operator) };
            name.to_str().unwrap_or("a call")
        };
        // SAFETY: the caller's promise.
        let part = unsafe { Posted::new(operator, run, argument) };
        match find("stream_post", device, id) {
            Ok(stream) => stream.post(part),
            Err(error) => {
                part.give_up();
                Err(error)
            }
        }
    })
}

/// `FlagosApi::stream_flush`.
pub(super) extern "C" fn flush(device: i32, id: u64) -> i32 {
    status(|| find("stream_flush", device, id)?.flush())
}

/// `FlagosApi::queues_flush`.
pub(super) extern "C" fn flush_all() -> i32 {
    status(|| match process::get() {
        Some(runtime) => runtime.vendor().flush(),
        None => Ok(()), // nothing was ever posted, or it is a forked child
    })
}

/// `FlagosApi::queues_counts`.
///
/// # Safety
/// `posted` and `waits` are NULL or valid for writing.
pub(super) unsafe extern "C" fn counts(posted: *mut u64, waits: *mut u64) -> i32 {
    status(|| {
        let (Some(posted), Some(waits)) = (NonNull::new(posted), NonNull::new(waits)) else {
            return Err(null("an output of queues_counts"));
        };
        let now = queue_counts();
        // SAFETY: the caller's promise.
        unsafe {
            posted.write(now.0);
            waits.write(now.1);
        }
        Ok(())
    })
}

/// `FlagosApi::queues_inject`.
pub(super) extern "C" fn inject(delay_us: u64, unmindful: u32) {
    inject_into_queues(delay_us, unmindful);
}

#[cold]
fn no_library<T>() -> Result<T> {
    let vendor = process::require("stream_library")?.vendor().name();
    let message = format!("the vendor `{vendor}` is no library with streams of its own");
    Err(Error::unsupported("stream_library", message))
}
