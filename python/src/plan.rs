//! The plan and the counters as Python data.

use std::path::PathBuf;
use std::sync::Arc;

use flagos_core::policy::{Explanation, Plan};
use flagos_core::router::{Counters, Router};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::operator;
use crate::router::{with_configuration, with_router};

fn current(py: Python<'_>) -> PyResult<Arc<Plan>> {
    with_configuration(py, "plan", Router::plan)
}

fn explanation<'py>(py: Python<'py>, explanation: &Explanation) -> PyResult<Bound<'py, PyAny>> {
    Ok(pythonize::pythonize(py, explanation)?)
}

#[pyfunction]
fn resolve(py: Python<'_>) -> PyResult<()> {
    with_configuration(py, "resolve", Router::resolve).map(drop)
}

#[pyfunction]
fn reload(py: Python<'_>) -> PyResult<()> {
    with_configuration(py, "reload", Router::reload).map(drop)
}

#[pyfunction]
fn plan(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let plan = current(py)?;
    let mut entries: Vec<_> = plan.iter().filter(|e| !e.is_decomposed()).collect();
    entries.sort_by(|a, b| a.op.cmp(&b.op));
    let ops = PyDict::new(py);
    for entry in entries {
        ops.set_item(&*entry.op, explanation(py, &entry.explain())?)?;
    }
    let unmatched = plan.unmatched().iter();
    let unmatched: Vec<_> = unmatched.map(|(op, from)| (op, from.to_string())).collect();
    let result = PyDict::new(py);
    result.set_item("ops", ops)?;
    result.set_item("unmatched", unmatched)?;
    Ok(result)
}

#[pyfunction]
fn graphs(py: Python<'_>) -> PyResult<(bool, String)> {
    let graphs = current(py)?.policy().graphs.clone();
    Ok((graphs.value, graphs.source.to_string()))
}

#[pyfunction]
fn queue(py: Python<'_>) -> PyResult<(bool, String)> {
    let queue = current(py)?.policy().queue.clone();
    Ok((queue.value, queue.source.to_string()))
}

#[pyfunction]
fn explain<'py>(py: Python<'py>, op: &str) -> PyResult<Bound<'py, PyAny>> {
    let explained = with_configuration(py, "explain", |router| router.explain(op))?;
    explanation(py, &explained)
}

#[pyfunction]
fn explain_text(py: Python<'_>, op: &str) -> PyResult<String> {
    let explained = with_configuration(py, "explain", |router| router.explain(op))?;
    Ok(explained.to_string())
}

#[pyfunction]
#[pyo3(signature = (prefix=None))]
fn ops(py: Python<'_>, prefix: Option<&str>) -> PyResult<Vec<String>> {
    let names = with_router(py, "ops", |router| {
        Ok(router.ops(prefix.unwrap_or_default()))
    })?;
    Ok(names.iter().map(ToString::to_string).collect())
}

#[pyfunction]
fn plan_lock(py: Python<'_>) -> PyResult<String> {
    Ok(current(py)?.lock())
}

#[pyfunction]
fn check_lock(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    with_configuration(py, "check_lock", |router| router.check_lock(&path))
}

#[pyfunction]
fn counters(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let mut counted = with_router(py, "counters", |router| Ok(router.counters()))?;
    // Calls of operators that Python calls are not counted in the core's slots.
    for (op, calls) in operator::calls(py)? {
        match counted.iter_mut().find(|c| *c.op == *op) {
            Some(known) => known.calls += calls,
            None => counted.push(Counters {
                op: op.into(),
                calls,
                fallbacks: 0,
            }),
        }
    }
    let result = PyDict::new(py);
    for counted in counted {
        let numbers = PyDict::new(py);
        numbers.set_item("calls", counted.calls)?;
        numbers.set_item("fallbacks", counted.fallbacks)?;
        result.set_item(&*counted.op, numbers)?;
    }
    Ok(result)
}

#[pyfunction]
fn reset_counters(py: Python<'_>) -> PyResult<()> {
    with_router(py, "reset_counters", |router| {
        router.reset_counters();
        Ok(())
    })?;
    operator::reset_calls(py)
}

#[pyfunction]
fn record_fallback(py: Python<'_>, op: &str, reason: &str) -> PyResult<()> {
    with_router(py, "record_fallback", |router| {
        router.record_fallback(op, reason)
    })
}

#[pyfunction]
fn fallbacks(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let records = with_router(py, "fallbacks", |router| Ok(router.fallbacks()))?;
    Ok(pythonize::pythonize(py, &records)?)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(resolve, module)?)?;
    module.add_function(wrap_pyfunction!(reload, module)?)?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    module.add_function(wrap_pyfunction!(graphs, module)?)?;
    module.add_function(wrap_pyfunction!(queue, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(explain_text, module)?)?;
    module.add_function(wrap_pyfunction!(ops, module)?)?;
    module.add_function(wrap_pyfunction!(plan_lock, module)?)?;
    module.add_function(wrap_pyfunction!(check_lock, module)?)?;
    module.add_function(wrap_pyfunction!(counters, module)?)?;
    module.add_function(wrap_pyfunction!(reset_counters, module)?)?;
    module.add_function(wrap_pyfunction!(record_fallback, module)?)?;
    module.add_function(wrap_pyfunction!(fallbacks, module)?)
}
