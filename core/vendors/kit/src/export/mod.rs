//! Any vendor of Rust as a table of `flagos_vendor.h`, for a library of its own.
//!
//! A crate of type `cdylib` implements [`Export`] and exports the one function with
//! [`export_vendor!`](crate::export_vendor); `core/tests/exported_host` is such a crate. No panic reaches the host: it becomes
//! `FLAGOS_VENDOR_INTERNAL`. Kernels of the library, which `flagos_kernels.h` is for, find the vendor and the stream of a call
//! with [`vendor_of`] and [`stream_of`].

mod description;
mod entry;
mod event;
mod exported;
mod graph;
mod handle;
mod instance;
mod launch;
mod outcome;
mod sharing;
mod stream;
mod table;

#[doc(hidden)]
pub use flagos_core::vendors::library::{FlagosVendor, FlagosVendorHost};

pub use entry::entry;
pub use exported::Export;
pub use handle::{stream_of, vendor_of};
pub use outcome::{last_error, status};
pub use table::Table;

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
            unsafe { $crate::export::entry::<$exported>(&TABLE, host, reason) }
        }
    };
}
