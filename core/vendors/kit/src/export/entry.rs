//! The entry function of an exported vendor.

use std::ffi::{CStr, c_char};
use std::mem::{offset_of, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::OnceLock;

use super::exported::Export;
use super::table::Table;
use flagos_core::vendors::library::*;

/// The body of `flagos_vendor`: the table, which is kept in `table`, or NULL and the reason.
///
/// # Safety
/// `host` is NULL or points at as many bytes as its `struct_size` says, and `reason` is NULL or a valid output.
pub unsafe fn entry<E: Export>(
    table: &'static OnceLock<Table>,
    host: *const FlagosVendorHost,
    reason: *mut *const c_char,
) -> *const FlagosVendor {
    // SAFETY: the caller's promise.
    unsafe {
        let given = versions(host, FLAGOS_VENDOR_MAJOR).and_then(|()| made::<E>(table));
        answered(given.map(Table::raw), reason)
    }
}

/// The body of `flagos_kernels`: the table, or NULL and the reason.
///
/// # Safety
/// As [`entry`].
pub unsafe fn kernels(
    table: fn() -> &'static FlagosKernels,
    host: *const FlagosVendorHost,
    reason: *mut *const c_char,
) -> *const FlagosKernels {
    // SAFETY: the caller's promise.
    unsafe {
        let given = versions(host, FLAGOS_KERNELS_MAJOR).and_then(|()| {
            catch_unwind(table).map_err(|_| c"panic while it describes its kernels")
        });
        answered(given, reason)
    }
}

/// # Safety
/// `reason` is NULL or a valid output.
unsafe fn answered<T>(
    given: Result<&'static T, &'static CStr>,
    reason: *mut *const c_char,
) -> *const T {
    given.map_or_else(
        |text| {
            if !reason.is_null() {
                // SAFETY: the caller's promise.
                unsafe { reason.write(text.as_ptr()) };
            }
            null()
        },
        std::ptr::from_ref,
    )
}

/// Fails unless the host takes this major version.
///
/// # Safety
/// As [`entry`].
unsafe fn versions(host: *const FlagosVendorHost, major: u32) -> Result<(), &'static CStr> {
    const NEEDED: usize = offset_of!(FlagosVendorHost, newest_major) + size_of::<u32>();
    // SAFETY: the caller's promise.
    if host.is_null() || unsafe { (*host).struct_size } < NEEDED {
        return Err(c"the host does not tell its versions of the interface");
    }
    // SAFETY: the caller's promise: the members are there.
    let (oldest, newest) = unsafe { ((*host).oldest_major, (*host).newest_major) };
    if (oldest..=newest).contains(&major) {
        Ok(())
    } else {
        Err(c"it is compiled with a major version of the interface that this flagos does not take")
    }
}

fn made<E: Export>(table: &'static OnceLock<Table>) -> Result<&'static Table, &'static CStr> {
    if let Some(table) = table.get() {
        return Ok(table);
    }
    let made = catch_unwind(AssertUnwindSafe(Table::new::<E>));
    let made = made.map_err(|_| c"panic while it describes itself")?;
    let made = made.map_err(|_| c"a text of its description has a NUL inside")?;
    Ok(table.get_or_init(|| made))
}
