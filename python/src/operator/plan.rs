//! Asking the plan for the implementation of an operator, and for the ones that take over when it declines a call.

use std::ptr;
use std::sync::Arc;

use flagos_core::policy::{Plan, PlanEntry};
use flagos_core::registry::Implementation;
use flagos_core::router::Router;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::epoch::{self, CONTEXTS};
use super::interpreter::vectorcall;
use super::layout::{Operator, Served};
use crate::errors::{IntoPython as _, unsupported};
use crate::router::{with_configuration, with_router};
use crate::{dispatch_log, foreign};

/// A function to call, and the count of its calls.
pub(super) struct Chosen {
    /// A reference that the receiver owns.
    pub(super) target: *mut PyObject,
    pub(super) serving: *const Served,
}

/// The positional and keyword arguments of a vectorcall.
#[derive(Clone, Copy)]
pub(super) struct Arguments {
    pub(super) values: *const *mut PyObject,
    /// The number of positional arguments, without `PY_VECTORCALL_ARGUMENTS_OFFSET`.
    pub(super) positional: usize,
    pub(super) names: *mut PyObject,
}

/// The qualified name of an operator.
pub(super) fn name_of(py: Python<'_>, op: *mut Operator) -> PyResult<String> {
    // SAFETY: an operator lives at least as long as the call that gave it, and has a name.
    let name = unsafe { Bound::from_borrowed_ptr(py, (*op).name) };
    Ok(name.cast_into::<PyString>()?.to_str()?.to_owned())
}

/// The published plan.
fn current(py: Python<'_>) -> PyResult<Arc<Plan>> {
    with_configuration(py, "plan", Router::plan)
}

/// The count of the calls that an implementation of `op` serves.
fn counts_of(op: *mut Operator, implementation: &Implementation) -> *const Served {
    // SAFETY: an operator that asks the plan has counts for all its life.
    let counts = unsafe { &*(*op).served };
    counts.of(&implementation.impl_id, &implementation.backend)
}

/// The Python function of an implementation; `None` when it has just been unregistered.
fn function(
    py: Python<'_>,
    entry: &PlanEntry,
    implementation: &Implementation,
) -> PyResult<Option<Py<PyAny>>> {
    match implementation.callable.token() {
        Some(token) => Ok(foreign::find(py, token)),
        None => {
            let (id, op) = (&implementation.impl_id, &entry.op);
            let message = format!("{id} of {op} is no Python function");
            Err(PyTypeError::new_err(message))
        }
    }
}

/// The function that was registered as `impl_id`.
///
/// # Errors
/// ValueError that lists the registered ids, when `impl_id` is none of them.
pub(super) fn implementation(
    py: Python<'_>,
    op: *mut Operator,
    impl_id: &str,
) -> PyResult<Py<PyAny>> {
    let name = name_of(py, op)?;
    let plan = current(py)?;
    let entry = plan.find(&name).into_python(py)?;
    let mut all = entry.implementations.iter().map(|c| &c.implementation);
    let found = match all.clone().find(|i| &*i.impl_id == impl_id) {
        Some(found) => function(py, entry, found)?,
        None => None,
    };
    found.ok_or_else(|| {
        let ids: Vec<_> = all.by_ref().map(|i| &*i.impl_id).collect();
        let ids = ids.join(", ");
        PyValueError::new_err(format!("{name} has no implementation {impl_id}, but {ids}"))
    })
}

/// Asks the plan for the function, and remembers it with the epoch that was read before asking.
///
/// # Errors
/// UnsupportedError with the explanation when the operator is blocked.
pub(super) fn choose(py: Python<'_>, op: *mut Operator) -> PyResult<Chosen> {
    let name = name_of(py, op)?;
    loop {
        let epoch = epoch::now() & !CONTEXTS;
        let plan = current(py)?;
        let entry = plan.find(&name).into_python(py)?;
        let Some(winner) = entry.winner() else {
            let why = entry.explain();
            return Err(unsupported(
                py,
                &format!("no implementation of {name} is usable:\n{why}"),
            ));
        };
        // Without a function, the winner was unregistered since. It has left the plan, which is asked again.
        let Some(target) = function(py, entry, winner)? else {
            continue;
        };
        let serving = counts_of(op, winner);
        let chosen = Chosen {
            target: target.clone_ref(py).into_ptr(),
            serving,
        };
        // SAFETY: the interpreter's lock is held: no call reads the fields meanwhile. The old target is
        // released last, because its finaliser may call the operator.
        unsafe {
            (*op).epoch = epoch;
            (*op).serving = serving;
            (*op).logged = plan.policy().log_dispatch.value;
            let old = ptr::replace(&raw mut (*op).target, target.into_ptr());
            ffi::Py_XDECREF(old);
        }
        return Ok(chosen);
    }
}

/// Lets the next usable implementation serve a call that `declined` refused.
///
/// # Errors
/// The exception of a successor, the refusal of the fallback, or UnsupportedError with every refusal.
///
/// # Safety
/// `arguments` are those of the call, which has not returned.
pub(super) unsafe fn take_over(
    py: Python<'_>,
    op: *mut Operator,
    declined: &Served,
    refusal: PyErr,
    arguments: Arguments,
) -> PyResult<Py<PyAny>> {
    let name = name_of(py, op)?;
    let plan = current(py)?;
    let entry = plan.find(&name).into_python(py)?;
    let mut reason = refusal_text(py, &declined.impl_id, &refusal)?;
    let mut reasons = reason.clone();
    for successor in entry.successors(&declined.impl_id) {
        let Some(target) = function(py, entry, successor)? else {
            continue;
        };
        let why = format!("{reason}; {} serves the call", successor.impl_id);
        with_router(py, "record_fallback", |router| {
            router.record_fallback(&name, &why)
        })
        .map_err(|error| after(py, error, &refusal))?;
        let Arguments {
            values,
            positional,
            names,
        } = arguments;
        // SAFETY: the caller's promise; a result is a reference of its own.
        let result = unsafe {
            let result = vectorcall(target.as_ptr(), values, positional, names);
            Bound::from_owned_ptr_or_err(py, result)
        };
        match result {
            Ok(result) => {
                // SAFETY: it lives as long as the operator.
                let served = unsafe { &*counts_of(op, successor) };
                served.count();
                if plan.policy().log_dispatch.value {
                    dispatch_log::write(py, &name, &served.backend)?;
                }
                return Ok(result.unbind());
            }
            Err(again) if crate::errors::is_unsupported(py, &again) => {
                reason = refusal_text(py, &successor.impl_id, &again)?;
                reasons = format!("{reasons}; {reason}");
            }
            Err(error) => return Err(after(py, error, &refusal)),
        }
    }
    let message = format!("no implementation of {name} takes this call: {reasons}");
    let error = unsupported(py, &message);
    error.set_cause(py, Some(refusal));
    Err(error)
}

fn refusal_text(py: Python<'_>, impl_id: &str, refusal: &PyErr) -> PyResult<String> {
    let refusal = refusal.value(py).str()?;
    Ok(format!("{impl_id} declined: {}", refusal.to_str()?))
}

/// An exception raised while `refusal` was handled.
fn after(py: Python<'_>, error: PyErr, refusal: &PyErr) -> PyErr {
    // SAFETY: both are exceptions; the reference to the second is given away.
    unsafe {
        let refusal = refusal.clone_ref(py).into_value(py).into_ptr();
        ffi::PyException_SetContext(error.value(py).as_ptr(), refusal);
    }
    error
}
