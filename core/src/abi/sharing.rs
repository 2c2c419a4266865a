//! Entries about device memory of other processes.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::runtime::{Sharing, process};

use super::status::{device_index, give, give_string, null, quietly, status};

fn sharing(operation: &'static str) -> Result<&'static dyn Sharing> {
    process::require(operation)?.vendor().sharing()
}

/// `FlagosApi::memory_sharing`.
pub(super) extern "C" fn supported() -> i32 {
    status(|| sharing("memory_sharing").map(drop))
}

/// `FlagosApi::memory_export`.
///
/// # Safety
/// The outputs are NULL or valid for writing.
pub(super) unsafe extern "C" fn export(
    device: i32,
    address: *const c_void,
    key: *mut *mut c_char,
    offset: *mut usize,
    nbytes: *mut usize,
) -> i32 {
    status(|| {
        if key.is_null() || offset.is_null() || nbytes.is_null() {
            return Err(null("an output of memory_export"));
        }
        let address = NonNull::new(address.cast::<u8>().cast_mut());
        let address = address.ok_or_else(|| null("the address of memory_export"))?;
        process::require("memory_export")?.vendor().flush()?;
        let found = sharing("memory_export")?.export(device_index(device)?, address)?;
        // SAFETY: the caller's promise.
        unsafe {
            give(offset, found.offset)?;
            give(nbytes, found.nbytes)?;
            give_string(key, found.key)
        }
    })
}

/// `FlagosApi::memory_import`.
///
/// # Safety
/// `key` is NULL or a text, that of memory of this size that another process keeps; `address` is NULL or valid for writing.
pub(super) unsafe extern "C" fn import(
    device: i32,
    key: *const c_char,
    nbytes: usize,
    address: *mut *mut c_void,
) -> i32 {
    status(|| {
        if key.is_null() || address.is_null() {
            return Err(null("the key or the output of memory_import"));
        }
        // SAFETY: the caller's promise.
        let key = unsafe { CStr::from_ptr(key) };
        let key = key
            .to_str()
            .map_err(|_| Error::invalid_argument("memory_import", "the key is no UTF-8"))?;
        // SAFETY: the caller's promise.
        unsafe {
            let found = sharing("memory_import")?.import(device_index(device)?, key, nbytes)?;
            give(address, found.as_ptr().cast())
        }
    })
}

/// `FlagosApi::memory_close`.
///
/// # Safety
/// `address` is NULL or came from [`import`], was not closed as often, and is not used any more.
pub(super) unsafe extern "C" fn close(device: i32, address: *mut c_void) {
    let Some(address) = NonNull::new(address.cast::<u8>()) else {
        return;
    };
    // In a forked child nothing of the vendor works.
    if process::get().is_none() {
        return;
    }
    quietly(|| {
        // SAFETY: the caller's promise.
        unsafe { sharing("memory_close")?.close(device_index(device)?, address) };
        Ok(())
    });
}
