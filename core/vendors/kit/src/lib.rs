//! What vendors of Rust share.
//!
//! * [`conformance`] is the suite that every vendor must pass.
//! * [`export`] makes a library of `flagos_vendor.h` of any vendor.
//! * [`driver`] is the back end of a driver's library: devices, streams and events over its functions, which
//!   [`driver_library`] and [`functions!`] find at run time. [`stream_work`] calls functions from its streams;
//!   [`allocations`] and [`imports`] know what the library does not tell of an address, and [`device_files`] how many
//!   devices there are without it.

pub mod allocations;
#[cfg(not(loom))]
pub mod conformance;
pub mod device_files;
pub mod driver;
pub mod driver_library;
pub mod export;
mod functions;
pub mod imports;
pub mod stream_work;

/// For [`functions!`].
#[doc(hidden)]
pub use libloading;
