//! The example chip in its two forms, and the vendor `host` as a library.

use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use flagos_core::runtime::Vendor;
use flagos_core::vendors::library::{
    self, FlagosKernels, FlagosKernelsEntry, FlagosVendor, FlagosVendorEntry, FlagosVendorHost,
    Library,
};

/// An entry function that is not NULL.
type Entry<Table> =
    unsafe extern "C" fn(*const FlagosVendorHost, *mut *const c_char) -> *const Table;

/// The entry function of the chip that is linked in.
pub fn linked_entry() -> FlagosVendorEntry {
    let entry = flagos_example_chip::entry();
    // SAFETY: both types are that of `flagos_vendor`, with other names for the structs behind its pointers.
    Some(unsafe { std::mem::transmute::<flagos_example_chip::Entry, Entry<FlagosVendor>>(entry) })
}

/// The entry function of the kernels of the chip that is linked in.
pub fn linked_kernels() -> FlagosKernelsEntry {
    let entry = flagos_example_chip::kernels_entry();
    // SAFETY: as above.
    Some(unsafe { std::mem::transmute::<flagos_example_chip::Entry, Entry<FlagosKernels>>(entry) })
}

/// The example chip, linked in.
pub fn linked() -> &'static Library {
    // SAFETY: the example keeps to the header.
    unsafe { Library::adopt("the program", linked_entry(), linked_kernels()) }.expect("it is taken")
}

/// The example chip, loaded.
pub fn loaded() -> &'static Library {
    Library::load(Path::new(flagos_example_chip::LIBRARY)).expect("it is taken")
}

/// The vendor `host` of a library, which cargo puts beside this program.
pub fn exported_host() -> &'static Library {
    let program = std::env::current_exe().expect("this program");
    Library::load(&program.with_file_name("libflagos_exported_host.so")).expect("it is taken")
}

/// The vendor of a library.
pub fn opened(library: &'static Library) -> Arc<dyn Vendor> {
    library::open(library, Box::leak(Box::default())).expect("it opens")
}
