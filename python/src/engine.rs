//! The way to the engine of this process: without the GIL, and not from a forked child.

use flagos_core::registry::{global, Engine};
use flagos_core::runtime::process;
use flagos_core::{Error, Result};
use pyo3::prelude::*;

use crate::errors::IntoPython as _;

/// Runs `work` on the engine with the GIL released: it may wait for a lock or read files.
///
/// In a forked child of a process that had initialised, the engine's lock may be held for ever by a
/// thread that the child does not have: that is `Forked` instead of waiting.
pub fn with_engine<T: Send>(
    py: Python<'_>,
    operation: &'static str,
    work: impl FnOnce(&'static Engine) -> Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| match process::is_forked() {
        true => Err(Error::forked(operation)),
        false => work(global()),
    })
    .into_python(py)
}
