//! Where manifests of vendors are, which Python tells.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use flagos_core::vendors::discovery::{self, Place};
use pyo3::prelude::*;

/// Lets Python tell where manifests of vendors are, before vendors are looked for the first time: every function does
/// that reads the configuration.
///
/// # Errors
/// When Python fails to.
pub fn find_manifests(py: Python<'_>) -> PyResult<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.load(Ordering::Acquire) {
        py.import("flagos.vendor_manifests")?
            .getattr("hand_over")?
            .call0()?;
        DONE.store(true, Ordering::Release);
    }
    Ok(())
}

#[pyfunction]
fn find_vendors_in(folder: PathBuf) {
    discovery::add(Place::Folder(folder));
}

#[pyfunction]
fn contribute_vendor(manifest: PathBuf) {
    discovery::add(Place::Manifest(manifest));
}

#[pyfunction]
fn contribute_missing_vendor(name: String, origin: String, reason: String) {
    discovery::add(Place::Missing {
        name,
        origin,
        reason,
    });
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(find_vendors_in, module)?)?;
    module.add_function(wrap_pyfunction!(contribute_vendor, module)?)?;
    module.add_function(wrap_pyfunction!(contribute_missing_vendor, module)?)
}
