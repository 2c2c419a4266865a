//! The vendor `cuda` as a library of `flagos_vendor.h` and `flagos_kernels.h`, under the name `cudalib`.
//!
//! It shows on a real device what a vendor needs to serve a framework by a library: the core's own memory and streams,
//! and a handful of kernels, here of PTX and for `float32` alone. A call that they do not compute is declined.

mod call;
mod layout;
mod loaded;
mod operators;
mod ptx;
mod table;
mod vendor;

use std::ffi::c_char;

use flagos_core::vendors::library::{FlagosKernels, FlagosVendorHost};

flagos_vendor_kit::export_vendor!(vendor::Cudalib);

/// The entry function of the kernels: see `flagos_kernels.h`.
///
/// # Safety
/// `host` is NULL or a struct of its own size, and `reason` NULL or a valid output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flagos_kernels(
    host: *const FlagosVendorHost,
    reason: *mut *const c_char,
) -> *const FlagosKernels {
    // SAFETY: the caller's promise.
    unsafe { table::entry(host, reason) }
}
