//! The recorder of a thread, a Python function that is called after every launch of the thread.

use std::cell::RefCell;

use pyo3::prelude::*;

thread_local! {
    static RECORDER: RefCell<Option<Py<PyAny>>> = const { RefCell::new(None) };
}

/// The recorder of this thread.
#[inline]
pub fn current(py: Python<'_>) -> Option<Py<PyAny>> {
    // A thread that is ending has no recorder any more.
    RECORDER
        .try_with(|recorder| recorder.borrow().as_ref().map(|one| one.clone_ref(py)))
        .ok()
        .flatten()
}

/// Sets this thread's recorder: every launch calls `recorder(kernel, grid, stream, args)`, or nothing with
/// `None`. Returns the recorder before.
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
