//! Any vendor of Rust as a table of `flagos_vendor.h`, for a library of its own.
//!
//! A crate of type `cdylib` implements [`Export`] and exports the one function with
//! [`export_vendor!`](crate::export_vendor); `core/tests/exported_host` is such a crate. No panic reaches the host: it becomes
//! `FLAGOS_VENDOR_INTERNAL`. What the library reports through `tracing` goes to the host's log. Kernels of the library, which `flagos_kernels.h` is for, find the vendor and the stream of a call
//! with [`vendor_of`] and [`stream_of`].

mod declaration;
mod description;
mod entry;
mod event;
mod exported;
mod graph;
mod handle;
mod instance;
mod launch;
mod log;
mod outcome;
mod sharing;
mod stream;
mod table;
mod variables;

#[doc(hidden)]
pub use flagos_core::vendors::library::{FlagosKernels, FlagosVendor, FlagosVendorHost};

pub use entry::{entry, kernels};
pub use exported::{Declaration, Export};
pub use handle::{stream_of, vendor_of};
#[doc(hidden)]
pub use log::follow;
pub use outcome::{last_error, status};
pub use table::Table;
pub use variables::check_variables;

/// Exports `flagos_vendor` for a type with [`Export`](crate::export::Export).
#[macro_export]
macro_rules! export_vendor {
    ($exported:ty) => {
        /// The entry function of the library: see `flagos_vendor.h`.
        ///
        /// # Safety
        /// `host` is NULL or a struct of its own size, and `reason` NULL or a valid output.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn flagos_vendor(
            host: *const $crate::export::FlagosVendorHost,
            reason: *mut *const ::std::ffi::c_char,
        ) -> *const $crate::export::FlagosVendor {
            static TABLE: ::std::sync::OnceLock<$crate::export::Table> =
                ::std::sync::OnceLock::new();
            // SAFETY: the caller's promise.
            unsafe {
                $crate::export::follow(host);
                $crate::export::entry::<$exported>(&TABLE, host, reason)
            }
        }
    };
}

/// Exports `flagos_kernels` for a function without parameters that returns a static table.
#[macro_export]
macro_rules! export_kernels {
    ($table:expr) => {
        /// The entry function of the kernels: see `flagos_kernels.h`.
        ///
        /// # Safety
        /// `host` is NULL or a struct of its own size, and `reason` NULL or a valid output.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn flagos_kernels(
            host: *const $crate::export::FlagosVendorHost,
            reason: *mut *const ::std::ffi::c_char,
        ) -> *const $crate::export::FlagosKernels {
            // SAFETY: the caller's promise.
            unsafe { $crate::export::kernels($table, host, reason) }
        }
    };
}
