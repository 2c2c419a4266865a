//! The part of the native module `flagos._core` that belongs to no adapter.
//!
//! Python functions over the core's router and C table. Everything that may wait for a lock, a file
//! or a device releases the GIL first; nothing below this crate knows that Python exists. The types
//! and the documentation of every function are in `flagos/_core.pyi`.

mod comm;
mod configuration;
mod device;
mod dispatch_log;
mod environment;
pub mod errors;
mod finalization;
pub mod foreign;
mod implementations;
mod launcher;
mod logs;
mod manifests;
mod once;
mod operator;
mod plan;
mod router;
mod routes;
mod submodule;
mod vendor_check;

use pyo3::prelude::*;

pub use manifests::find_manifests;
pub use submodule::submodule;

/// Adds all functions and classes to the module.
///
/// # Errors
/// When another copy of the module is loaded, or the interpreter refuses a type.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    once::require_only_copy(module.py())?;
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    logs::register(module)?;
    manifests::register(module)?;
    device::register(module)?;
    vendor_check::register(module)?;
    comm::register(module)?;
    environment::register(module)?;
    configuration::register(module)?;
    implementations::register(module)?;
    plan::register(module)?;
    dispatch_log::register(module)?;
    operator::register(module)?;
    launcher::register(module)?;
    routes::register(module)
}
