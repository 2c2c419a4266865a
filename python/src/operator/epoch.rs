//! The epoch, by which a call tells whether a remembered function is still the right one.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use flagos_core::router::global;
use pyo3::ffi;
use pyo3::prelude::*;

use super::interpreter::PyContextVar_New;

/// The bit that is set in [`EPOCH`] while a policy context is entered anywhere in the process. No operator
/// remembers an epoch with this bit, so that the same comparison also makes a call look for its context.
pub(super) const CONTEXTS: u64 = 1 << 63;

/// The count of changes: of the plan, and of adapters' own registries and policies.
static EPOCH: AtomicU64 = AtomicU64::new(1);
static ENTERED: AtomicUsize = AtomicUsize::new(0);
/// The context variable that holds the override of the current thread or task.
static VARIABLE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(std::ptr::null_mut());
const NAME: &CStr = c"flagos_policy_override";

#[inline]
pub(super) fn now() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// The context variable, as a borrowed reference that stays valid for the life of the process.
#[inline]
pub(super) fn variable() -> *mut ffi::PyObject {
    VARIABLE.load(Ordering::Relaxed)
}

/// The epoch, without the mark of contexts.
#[pyfunction]
fn epoch() -> u64 {
    now() & !CONTEXTS
}

/// Makes every remembered function stale, and returns the new epoch.
#[pyfunction]
pub(super) fn advance() -> u64 {
    (EPOCH.fetch_add(1, Ordering::AcqRel) + 1) & !CONTEXTS
}

/// Counts a policy context that was entered. The interpreter's lock serialises this with `leave`.
#[pyfunction]
fn enter() {
    if ENTERED.fetch_add(1, Ordering::AcqRel) == 0 {
        EPOCH.fetch_or(CONTEXTS, Ordering::AcqRel);
    }
}

/// Counts a policy context that was left.
#[pyfunction]
fn leave() {
    if ENTERED.fetch_sub(1, Ordering::AcqRel) == 1 {
        EPOCH.fetch_and(!CONTEXTS, Ordering::AcqRel);
    }
}

/// Adds the functions and the context variable to the module, and advances the epoch with every plan from now on.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    global().when_changed(|| _ = advance());
    if variable().is_null() {
        // SAFETY: a new reference or null with an exception; it is kept for the life of the process.
        let made = unsafe { PyContextVar_New(NAME.as_ptr(), std::ptr::null_mut()) };
        if made.is_null() {
            return Err(PyErr::fetch(py));
        }
        VARIABLE.store(made, Ordering::Relaxed);
    }
    // SAFETY: a borrowed reference to an object that lives for ever.
    let variable = unsafe { Bound::from_borrowed_ptr(py, variable()) };
    module.add("policy_variable", variable)?;
    module.add_function(wrap_pyfunction!(epoch, module)?)?;
    module.add_function(wrap_pyfunction!(advance, module)?)?;
    module.add_function(wrap_pyfunction!(enter, module)?)?;
    module.add_function(wrap_pyfunction!(leave, module)?)
}
