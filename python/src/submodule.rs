//! Submodules of `flagos._core`.

use pyo3::prelude::*;

/// A new submodule.
///
/// # Errors
/// When the interpreter refuses it.
pub fn submodule<'py>(module: &Bound<'py, PyModule>, name: &str) -> PyResult<Bound<'py, PyModule>> {
    let submodule = PyModule::new(module.py(), name)?;
    module.add_submodule(&submodule)?;
    // Entered here so that `from flagos._core.te import ...` finds the submodule, which is no package.
    let modules = module.py().import("sys")?.getattr("modules")?;
    modules.set_item(format!("flagos._core.{name}"), &submodule)?;
    Ok(submodule)
}
