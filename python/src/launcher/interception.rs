//! The classes whose launches pass here: Triton's `JITFunction` and FlagGems' `LibEntry`.

use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;

use super::ffi::Object;

/// Whose functions.
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

/// A class whose launches pass here.
pub struct Interception {
    pub kind: Kind,
    /// The method that was replaced.
    pub original: Py<PyAny>,
    /// Explains what the original path did.
    pub learn: Py<PyAny>,
    /// Says what arguments are to a function.
    pub bind: Py<PyAny>,
    pub names: Names,
    /// The `run` that replaced it.
    pub replacement: Py<PyAny>,
}

// SAFETY: interned names, alive as long as the process.
unsafe impl Send for Interception {}
// SAFETY: as above; the objects are only touched with the GIL held.
unsafe impl Sync for Interception {}

/// One of each kind; never freed.
static INTERCEPTIONS: [AtomicPtr<Interception>; 2] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];

impl Interception {
    /// Whether `run` of the function's class is ours.
    ///
    /// # Safety
    /// The GIL is held and the function is alive.
    #[inline]
    pub unsafe fn is_in_place(&self, _: Python<'_>, function: Object) -> bool {
        // SAFETY: the caller's promise; an attribute that is not there is another one.
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

/// Has launches of a kind of function pass through `interception`.
pub fn install(interception: Interception) {
    let kind = interception.kind as usize;
    let interception = Box::into_raw(Box::new(interception));
    INTERCEPTIONS[kind].store(interception, Ordering::Release);
}
