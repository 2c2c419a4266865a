//! Entries about the kernels of a vendor's library.

use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::runtime::process;
use crate::vendors::library::{FlagosKernels, FlagosVendorInstance, FlagosVendorStream};

use super::init::chosen_kernels;
use super::status::{catch, fail, null, status};
use super::streams::stream as find;

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

#[cold]
fn no_library<T>() -> Result<T> {
    let vendor = process::require("stream_library")?.vendor().name();
    let message = format!("the vendor `{vendor}` is no library with streams of its own");
    Err(Error::unsupported("stream_library", message))
}
