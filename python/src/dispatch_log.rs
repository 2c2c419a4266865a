//! The dispatch log of Python: a line for each call, with the implementation that serves it.

use flagos_core::router::{Router, dispatch_line, global};
use pyo3::prelude::*;

use crate::router::with_configuration;

/// Writes the line to `sys.stderr`.
pub fn write(py: Python<'_>, op: &str, backend: &str) -> PyResult<()> {
    let stderr = py.import("sys")?.getattr("stderr")?;
    let line = dispatch_line(global().published().as_deref(), op, backend);
    stderr.call_method1("write", (line,))?;
    Ok(())
}

/// Writes the line if the plan logs dispatches. Takes no lock, because adapters call this at every call of a
/// Python kernel.
#[pyfunction]
fn log_dispatch(py: Python<'_>, op: &str, backend: &str) -> PyResult<()> {
    let plan = match global().published() {
        Some(plan) => plan,
        None => with_configuration(py, "plan", Router::plan)?,
    };
    if plan.policy().log_dispatch.value {
        write(py, op, backend)
    } else {
        Ok(())
    }
}

/// Adds the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(log_dispatch, module)?)
}
