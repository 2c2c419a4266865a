//! The example vendor of `core/examples/vendor`, linked into the program, and the path of the same as a library.

use std::ffi::{c_char, c_void};

/// The library.
pub const LIBRARY: &str = env!("FLAGOS_EXAMPLE_CHIP");

/// The type of the entry functions, by layout: `FlagosVendorEntry` and `FlagosKernelsEntry` of the core, which this crate
/// does not know.
pub type Entry = unsafe extern "C" fn(*const c_void, *mut *const c_char) -> *const c_void;

unsafe extern "C" {
    fn flagos_vendor(host: *const c_void, reason: *mut *const c_char) -> *const c_void;
    fn flagos_kernels(host: *const c_void, reason: *mut *const c_char) -> *const c_void;
}

/// The entry function that is linked in.
pub fn entry() -> Entry {
    flagos_vendor
}

/// The entry function of the kernels, linked in too.
pub fn kernels_entry() -> Entry {
    flagos_kernels
}
