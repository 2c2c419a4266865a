//! Operators that Python calls: `flagos.Operator`, and those of adapters that choose by themselves.
//!
//! An operator remembers the function it last resolved to, and the [epoch] of that. A call compares the
//! epoch and calls the function with the caller's own arguments, without environment, lock or strings. Every
//! change that may lead to another function advances the epoch, and the next call asks again: the plan
//! ([plan]), or the adapter's own `resolve`.
//!
//! In order, each knowing only those before it: [interpreter], [epoch], [types] (types of Python made
//! from C structures), [layout] (those structures), [plan] (asking the plan), [call] (the call of an
//! operator), [python] (the classes and functions for Python).

mod call;
mod epoch;
mod interpreter;
mod layout;
mod plan;
mod python;
mod types;

use pyo3::prelude::*;

use crate::submodule::submodule;

pub(crate) use python::{calls, reset_calls};

/// Adds the class to the module, and a submodule with what adapters need beside it.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::find(module.py())?;
    let submodule = submodule(module, "operator")?;
    epoch::register(&submodule)?;
    python::register(module, &submodule)
}
