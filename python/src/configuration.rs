//! The configuration of files and variables, as Python data.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::logs;
use crate::router::{with_configuration, with_router};

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[pyfunction]
fn configuration(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let config = with_configuration(py, "configuration", |router| {
        let config = router.config()?;
        logs::check_directives(config.log.as_deref())?;
        Ok(config)
    })?;
    let files: Vec<_> = config.files.iter().map(|path| shown(path)).collect();
    let result = PyDict::new(py);
    result.set_item("files", files)?;
    result.set_item("backends_conf", config.backends_conf.as_deref().map(shown))?;
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
    with_router(py, "set_shipped_config", |router| {
        router.set_shipped_config(&path)
    })
}

#[pyfunction]
fn leave_to_framework(py: Python<'_>, names: Vec<String>) -> PyResult<()> {
    with_router(py, "leave_to_framework", |router| {
        router.leave_to_framework(names)
    })
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(configuration, module)?)?;
    module.add_function(wrap_pyfunction!(set_shipped_config, module)?)?;
    module.add_function(wrap_pyfunction!(leave_to_framework, module)?)
}
