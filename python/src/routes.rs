//! Routes set by the program: the API layer and contexts.

use std::collections::BTreeMap;

use flagos_core::router::ContextToken;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::router::{with_configuration, with_router};

/// The last value of `set_strict`, which a region that overrides it restores.
static STRICT: Mutex<Option<bool>> = Mutex::new(None);

#[pyfunction]
fn set_route(py: Python<'_>, op: &str, selector: &str) -> PyResult<()> {
    let call = format!("flagos.set_route({op:?}, {selector:?})");
    with_configuration(py, "set_route", |router| {
        router.set_route(op, selector, &call)
    })
}

#[pyfunction]
#[pyo3(signature = (op=None))]
fn clear_route(py: Python<'_>, op: Option<&str>) -> PyResult<usize> {
    with_router(py, "clear_route", |router| router.clear_route(op))
}

#[pyfunction]
fn push_context(py: Python<'_>, routes: BTreeMap<String, String>) -> PyResult<u64> {
    let pairs = routes
        .iter()
        .map(|(op, route)| (op.as_str(), route.as_str()));
    with_configuration(py, "push_context", |router| router.push_context(pairs)).map(|token| token.0)
}

#[pyfunction]
fn pop_context(py: Python<'_>, token: u64) -> PyResult<()> {
    with_router(py, "pop_context", |router| {
        router.pop_context(ContextToken(token))
    })
}

#[pyfunction]
fn set_strict(py: Python<'_>, enabled: Option<bool>) -> PyResult<()> {
    with_router(py, "set_strict", |router| {
        let mut current = STRICT.lock();
        match enabled {
            Some(strict) => router.set_strict(strict)?,
            None => router.update_api(|layer| layer.strict = None)?,
        }
        *current = enabled;
        Ok(())
    })
}

#[pyfunction]
fn strict_override(py: Python<'_>) -> Option<bool> {
    py.detach(|| *STRICT.lock())
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(set_route, module)?)?;
    module.add_function(wrap_pyfunction!(clear_route, module)?)?;
    module.add_function(wrap_pyfunction!(push_context, module)?)?;
    module.add_function(wrap_pyfunction!(pop_context, module)?)?;
    module.add_function(wrap_pyfunction!(set_strict, module)?)?;
    module.add_function(wrap_pyfunction!(strict_override, module)?)
}
