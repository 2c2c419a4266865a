//! Operators as Python calls them: `flagos.Operator`, and those of adapters that choose by themselves.
//!
//! Each remembers the function it last resolved to and the [epoch] it did that in. A call compares
//! one number and calls the function with the caller's own arguments: no environment, no lock, no
//! string. Whatever may change the answer advances the epoch, and the next call asks again: the plan
//! ([plan]), or the adapter's own `resolve`.
//!
//! In order, each knowing only those before it: [interpreter], [epoch], [types] (types of Python made
//! from C structures), [layout] (those structures), [plan], [call] (what happens in a call), [python]
//! (what Python sees of all this).

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
