//! `flagos._core`: the one native core module of a process.
//!
//! Python functions over the core's router and C table. Everything that may wait for a lock, a file
//! or a device releases the GIL first; nothing below this crate knows that Python exists. The types
//! and the documentation of every function are in `flagos/_core.pyi`.

mod comm;
mod configuration;
mod device;
mod environment;
mod errors;
mod foreign;
mod implementations;
mod launcher;
mod logs;
mod once;
mod plan;
mod router;
mod routes;
mod te;

use pyo3::prelude::*;

/// The native core of flagos. Use it through the package `flagos`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    once::require_only_copy(module.py())?;
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    logs::register(module)?;
    device::register(module)?;
    comm::register(module)?;
    environment::register(module)?;
    configuration::register(module)?;
    implementations::register(module)?;
    plan::register(module)?;
    launcher::register(module)?;
    routes::register(module)?;
    te::register(module)
}
