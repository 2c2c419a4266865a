//! Who wants to be told of every launch of a thread.

use std::cell::RefCell;

use pyo3::prelude::*;

thread_local! {
    static RECORDER: RefCell<Option<Py<PyAny>>> = const { RefCell::new(None) };
}

/// The recorder of this thread.
#[inline]
pub fn current(py: Python<'_>) -> Option<Py<PyAny>> {
    // While the thread ends, there is none.
    RECORDER
        .try_with(|recorder| recorder.borrow().as_ref().map(|one| one.clone_ref(py)))
        .ok()
        .flatten()
}

/// Has `recorder(kernel, grid, stream, args)` called after every launch this thread makes, or nobody with
/// `None`; returns the one before.
#[pyfunction]
fn launch_set_recorder(recorder: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
    RECORDER
        .try_with(|current| current.replace(recorder))
        .ok()
        .flatten()
}

/// The recorder of this thread, or `None`.
#[pyfunction]
fn launch_recorder(py: Python<'_>) -> Option<Py<PyAny>> {
    current(py)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(launch_set_recorder, module)?)?;
    module.add_function(wrap_pyfunction!(launch_recorder, module)?)
}
