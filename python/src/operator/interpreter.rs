//! The functions of CPython that the stable ABI of 3.10 does not promise.
//!
//! Every version since 3.8 exports `PyVectorcall_Call`, `PyContextVar_*` and `PyInstanceMethod_New` with these
//! signatures. `PyObject_Vectorcall` is an inline function before 3.11, and is looked up at run time; where it
//! is missing, `PyObject_VectorcallDict`, exported since 3.9, does the same with a dictionary of keyword
//! arguments.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::finalization::never_unwinds;

// SAFETY: declared in CPython's cpython/abstract.h, cpython/context.h and cpython/classobject.h.
unsafe extern "C" {
    pub(super) fn PyVectorcall_Call(
        callable: *mut PyObject,
        tuple: *mut PyObject,
        dict: *mut PyObject,
    ) -> *mut PyObject;
    pub(super) fn PyContextVar_New(name: *const c_char, default: *mut PyObject) -> *mut PyObject;
    pub(super) fn PyContextVar_Get(
        variable: *mut PyObject,
        default: *mut PyObject,
        value: *mut *mut PyObject,
    ) -> c_int;
    pub(super) fn PyInstanceMethod_New(function: *mut PyObject) -> *mut PyObject;
}

/// `vectorcallfunc` of CPython's object.h.
pub(super) type Vectorcall = unsafe extern "C" fn(
    *mut PyObject,
    *const *mut PyObject,
    usize,
    *mut PyObject,
) -> *mut PyObject;

/// `PY_VECTORCALL_ARGUMENTS_OFFSET`: the callee may use the place before the first argument.
pub(super) const ARGUMENTS_OFFSET: usize = 1 << (usize::BITS - 1);
/// `Py_TPFLAGS_HAVE_VECTORCALL`, the same bit since 3.8.
pub(super) const HAVE_VECTORCALL: u64 = 1 << 11;

static VECTORCALL: AtomicUsize = AtomicUsize::new(0);
static VECTORCALL_DICT: AtomicUsize = AtomicUsize::new(0);

fn symbol(name: &CStr) -> usize {
    // SAFETY: looks a name up among the libraries of the process.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
}

/// Finds the function behind [`vectorcall`]. Called once, before any object is made.
pub(super) fn find(_py: Python<'_>) -> PyResult<()> {
    let direct = symbol(c"PyObject_Vectorcall");
    let by_dict = symbol(c"PyObject_VectorcallDict");
    VECTORCALL_DICT.store(by_dict, Ordering::Relaxed);
    let function = match (direct, by_dict) {
        (0, 0) => {
            let message =
                "this interpreter offers neither PyObject_Vectorcall nor PyObject_VectorcallDict";
            return Err(PyImportError::new_err(message));
        }
        (0, _) => vectorcall_by_dict as Vectorcall as usize,
        (direct, _) => direct,
    };
    VECTORCALL.store(function, Ordering::Relaxed);
    Ok(())
}

/// `PyObject_Vectorcall`.
///
/// # Safety
/// The interpreter's lock is held, and the arguments are those of a vectorcall.
#[inline]
pub(super) unsafe fn vectorcall(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let function = VECTORCALL.load(Ordering::Relaxed);
    // SAFETY: `find` stored a function of this type before any caller could exist.
    let function: Vectorcall = unsafe { std::mem::transmute(function) };
    // SAFETY: the caller's promise.
    never_unwinds(|| unsafe { function(callable, args, nargsf, kwnames) })
}

/// Calls an object with these positional arguments; a new reference, null with an exception set.
///
/// # Safety
/// The interpreter's lock is held, and the objects are alive.
pub(super) unsafe fn call<const N: usize>(
    callable: *mut PyObject,
    args: [*mut PyObject; N],
) -> *mut PyObject {
    // SAFETY: the caller's promise; no names.
    unsafe { vectorcall(callable, args.as_ptr(), N, std::ptr::null_mut()) }
}

unsafe extern "C" fn vectorcall_by_dict(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the arguments are those of a vectorcall.
    let kwargs = unsafe { keywords(args, nargsf & !ARGUMENTS_OFFSET, kwnames) };
    let Ok(kwargs) = kwargs else {
        return std::ptr::null_mut();
    };
    let function = VECTORCALL_DICT.load(Ordering::Relaxed);
    // SAFETY: `find` chose this function only where that one exists, with this signature.
    let function: Vectorcall = unsafe { std::mem::transmute(function) };
    // SAFETY: as the caller of a vectorcall says; `kwargs` is null or a dictionary.
    unsafe {
        let result = function(callable, args, nargsf, kwargs);
        ffi::Py_XDECREF(kwargs);
        result
    }
}

/// The keyword arguments of a vectorcall as a new dictionary, null without any; `Err` with an exception set.
///
/// # Safety
/// `args` holds `nargs` values and one for each of `kwnames`, which is null or a tuple.
pub(super) unsafe fn keywords(
    args: *const *mut PyObject,
    nargs: usize,
    kwnames: *mut PyObject,
) -> Result<*mut PyObject, ()> {
    if kwnames.is_null() {
        return Ok(std::ptr::null_mut());
    }
    // SAFETY: a tuple of as many names as there are values behind the positional ones.
    unsafe {
        let dict = ffi::PyDict_New();
        if dict.is_null() {
            return Err(());
        }
        for index in 0..ffi::PyTuple_Size(kwnames) {
            let name = ffi::PyTuple_GetItem(kwnames, index);
            let value = *args.add(nargs + index as usize);
            if name.is_null() || ffi::PyDict_SetItem(dict, name, value) < 0 {
                ffi::Py_DECREF(dict);
                return Err(());
            }
        }
        Ok(dict)
    }
}
