//! What files and variables say, as Python data.

use std::path::{Path, PathBuf};

use flagos_core::registry::global;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::IntoPython as _;
use crate::logs;

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[pyfunction]
fn configuration(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let config = py.detach(|| global().config()).into_python(py)?;
    logs::check_directives(config.log.as_deref()).into_python(py)?;
    let files: Vec<_> = config.files.iter().map(|path| shown(path)).collect();
    let result = PyDict::new(py);
    result.set_item("files", files)?;
    result.set_item("warnings", &config.warnings)?;
    result.set_item("lock", config.lock.as_deref().map(shown))?;
    result.set_item("vendor", config.vendor())?;
    let source = config.flaggems_source_dir.as_deref().map(shown);
    result.set_item("flaggems_source_dir", source)?;
    result.set_item("gems_vendor", &config.gems_vendor)?;
    Ok(result)
}

#[pyfunction]
fn set_shipped_config(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    py.detach(|| global().set_shipped_config(&path))
        .into_python(py)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(configuration, module)?)?;
    module.add_function(wrap_pyfunction!(set_shipped_config, module)?)
}
