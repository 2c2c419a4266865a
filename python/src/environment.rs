//! The declared environment variables, and their values in this process.

use flagos_core::env::{self, Env, Group, Var, VarKind};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::IntoPython as _;

/// Every declared variable in the order of the documentation, with its value here or `None`.
/// `FLAGOS_OP_<op>` is followed by one entry for each operator routed by a variable.
#[pyfunction]
fn environment(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let here = Env::from_process();
    let mut entries = Vec::with_capacity(env::VARS.len());
    for var in Group::all().into_iter().flat_map(Group::vars) {
        entries.push(entry(py, var, var.name, here.get(var.name))?);
        if var.name == env::OP.name {
            for (name, _, value) in here.op_routes() {
                entries.push(entry(py, var, name, Some(value))?);
            }
        }
    }
    Ok(entries)
}

fn entry<'py>(
    py: Python<'py>,
    var: &Var,
    name: &str,
    value: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", name)?;
    dict.set_item("group", group(var.group))?;
    dict.set_item("kind", kind(var.kind))?;
    dict.set_item("default", var.default)?;
    dict.set_item("doc", var.doc)?;
    dict.set_item("value", value)?;
    Ok(dict)
}

fn group(group: Group) -> &'static str {
    match group {
        Group::Configuration => "configuration",
        Group::Routing => "routing",
        Group::Logging => "logging",
        Group::FlagGems => "flaggems",
        Group::LightX2v => "lightx2v",
        Group::Host => "host",
        Group::Vendor(name) => name,
        Group::TransformerEngine => "transformer_engine",
        Group::Collectives => "comm",
        Group::Legacy => "legacy",
    }
}

fn kind(kind: VarKind) -> &'static str {
    match kind {
        VarKind::Flag => "flag",
        VarKind::Count => "count",
        VarKind::Limit => "limit",
        VarKind::Bytes => "bytes",
        VarKind::Path => "path",
        VarKind::Paths => "paths",
        VarKind::Text => "text",
        VarKind::Route => "route",
        VarKind::Retired => "retired",
    }
}

/// The mistakes in the variables set here: `(name, message, hint, is_error)`, one for each variable.
#[pyfunction]
fn check_environment() -> Vec<(String, String, Option<String>, bool)> {
    let mut findings = Vec::new();
    for (name, value) in std::env::vars_os() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        // Each variable is checked alone, so that one mistake does not hide the next.
        match Env::from_pairs([(name.as_ref(), value)]).check() {
            Ok(warnings) => findings.extend(
                warnings
                    .into_iter()
                    .map(|warning| (name.to_string(), warning, None, false)),
            ),
            Err(error) => findings.push((
                name.to_string(),
                error.message().to_owned(),
                error.hint().map(str::to_owned),
                true,
            )),
        }
    }
    findings.sort();
    findings
}

/// The value of the flag `name`; `False` where it is not set. Raises `ConfigError` for a value that is no flag, and
/// `KeyError` for a name that is not declared.
#[pyfunction]
fn environment_flag(py: Python<'_>, name: &str) -> PyResult<bool> {
    let declared = env::declaration(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
    let value = Env::from_process().flag(declared).into_python(py)?;
    Ok(value.unwrap_or(false))
}

/// The text of `docs/environment.md`.
#[pyfunction]
fn environment_markdown() -> String {
    env::markdown()
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(environment, module)?)?;
    module.add_function(wrap_pyfunction!(check_environment, module)?)?;
    module.add_function(wrap_pyfunction!(environment_flag, module)?)?;
    module.add_function(wrap_pyfunction!(environment_markdown, module)?)
}
