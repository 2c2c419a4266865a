//! Submodules of `flagos._core`.

use pyo3::prelude::*;

/// A new submodule.
///
/// # Errors
/// When the interpreter refuses it.
pub fn submodule<'py>(module: &Bound<'py, PyModule>, name: &str) -> PyResult<Bound<'py, PyModule>> {
    let submodule = PyModule::new(module.py(), name)?;
    module.add_submodule(&submodule)?;
    // So that `from flagos._core.te import ...` finds it: a submodule is no package.
    let modules = module.py().import("sys")?.getattr("modules")?;
    modules.set_item(format!("flagos._core.{name}"), &submodule)?;
    Ok(submodule)
}
