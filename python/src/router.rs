//! Calls of the process's router: with the GIL released, and not from a forked child.

use flagos_core::router::{Router, global};
use flagos_core::runtime::process;
use flagos_core::{Error, Result};
use pyo3::prelude::*;

use crate::errors::IntoPython as _;
use crate::manifests::find_manifests;

/// As [`with_router`], of an operation that may read the configuration, which may name vendors.
pub fn with_configuration<T: Send>(
    py: Python<'_>,
    operation: &'static str,
    work: impl FnOnce(&'static Router) -> Result<T> + Send,
) -> PyResult<T> {
    if !process::is_forked() {
        find_manifests(py)?;
    }
    with_router(py, operation, work)
}

/// Runs `work` on the router with the GIL released, because `work` may wait for a lock or read files.
///
/// Fails with `Forked` in a forked child of a process that had initialised, where the router's lock may be
/// held for ever by a thread that the child does not have.
pub fn with_router<T: Send>(
    py: Python<'_>,
    operation: &'static str,
    work: impl FnOnce(&'static Router) -> Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| {
        if process::is_forked() {
            Err(Error::forked(operation))
        } else {
            work(global())
        }
    })
    .into_python(py)
}
