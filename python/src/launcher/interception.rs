//! The classes whose launches the launcher takes over: Triton's `JITFunction` and FlagGems' `LibEntry`.

use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;

use super::ffi::Object;

/// An intercepted class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `triton.runtime.JITFunction`.
    Jit = 0,
    /// `flag_gems.utils.libentry.LibEntry`.
    Entry = 1,
}

/// Names looked up in functions' dictionaries.
pub struct Names {
    pub run: Object,
    pub pre_run_hooks: Object,
    pub cache: Object,
}

/// The interception of a class.
pub struct Interception {
    pub kind: Kind,
    /// The class's own `run`.
    pub original: Py<PyAny>,
    /// The Python function that makes a plan from a call on the original path.
    pub learn: Py<PyAny>,
    /// The Python function that tells the roles of a call's arguments.
    pub bind: Py<PyAny>,
    pub names: Names,
    /// The `run` that replaces the class's own.
    pub replacement: Py<PyAny>,
}

// SAFETY: interned names, alive as long as the process.
unsafe impl Send for Interception {}
// SAFETY: as above; the objects are only touched with the GIL held.
unsafe impl Sync for Interception {}

/// The interception of each class; never freed.
static INTERCEPTIONS: [AtomicPtr<Interception>; 2] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];

impl Interception {
    /// Whether the function's class still has the replacement as its `run`.
    ///
    /// # Safety
    /// The GIL is held and the function is alive.
    #[inline]
    pub unsafe fn is_in_place(&self, _: Python<'_>, function: Object) -> bool {
        // SAFETY: the caller's promise; a missing attribute counts as another one.
        unsafe {
            let class = py_ffi::Py_TYPE(function).cast::<py_ffi::PyObject>();
            let run = py_ffi::PyObject_GetAttr(class, self.names.run);
            if run.is_null() {
                py_ffi::PyErr_Clear();
                return false;
            }
            py_ffi::Py_DECREF(run);
            run == self.replacement.as_ptr()
        }
    }
}

/// The interception of a kind; an error before it is installed.
pub fn of(kind: usize) -> PyResult<&'static Interception> {
    // SAFETY: NULL, or set once and never freed.
    unsafe { INTERCEPTIONS[kind].load(Ordering::Acquire).as_ref() }
        .ok_or_else(|| PyValueError::new_err("the launcher is not installed"))
}

/// Makes `interception` the one of its class.
pub fn install(interception: Interception) {
    let kind = interception.kind as usize;
    let interception = Box::into_raw(Box::new(interception));
    INTERCEPTIONS[kind].store(interception, Ordering::Release);
}
