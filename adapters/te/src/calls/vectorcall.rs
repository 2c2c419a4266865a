//! What happens in a call.

use std::ptr;

use pyo3::ffi::{self, PyObject};

use super::epoch::{self, CONTEXTS};
use super::interpreter::{keywords, vectorcall, PyContextVar_Get, ARGUMENTS_OFFSET};
use super::objects::{ManagerCall, OpCall, Override};

/// Calls an operator.
///
/// # Safety
/// `slf` is an [`OpCall`]; the rest as in any vectorcall.
pub(super) unsafe extern "C" fn operator(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let op = slf.cast::<OpCall>();
    let epoch = epoch::now();
    // SAFETY: an object of this type is initialised before anybody gets it; the target may be
    // replaced while it runs, so the call has a reference of its own.
    unsafe {
        let target = if (*op).epoch == epoch {
            let target = (*op).target;
            ffi::Py_INCREF(target);
            target
        } else {
            find_target(op, epoch)
        };
        if target.is_null() {
            return ptr::null_mut();
        }
        let result = vectorcall(target, args, nargsf, kwnames);
        if result.is_null() {
            return failed(op, target, args, nargsf & !ARGUMENTS_OFFSET, kwnames);
        }
        ffi::Py_DECREF(target);
        result
    }
}

/// A new reference to the function to call, null with an exception set.
///
/// # Safety
/// `op` is an [`OpCall`].
#[cold]
unsafe fn find_target(op: *mut OpCall, epoch: u64) -> *mut PyObject {
    let plain = epoch & !CONTEXTS;
    // SAFETY: the variable exists since the module does, and holds an `Override` or nothing: only
    // this package has it.
    unsafe {
        if epoch != plain {
            let mut value = ptr::null_mut();
            if PyContextVar_Get(epoch::variable(), ptr::null_mut(), &raw mut value) < 0 {
                return ptr::null_mut();
            }
            if value.is_null() {
                if (*op).epoch == plain {
                    let target = (*op).target;
                    ffi::Py_INCREF(target);
                    return target;
                }
            } else {
                let over = Override::cast(value);
                if !over.is_null() && (*over).epoch == plain {
                    let target = ffi::PyDict_GetItemWithError((*over).table, op.cast());
                    if !target.is_null() {
                        ffi::Py_INCREF(target);
                        ffi::Py_DECREF(value);
                        return target;
                    }
                    if !ffi::PyErr_Occurred().is_null() {
                        ffi::Py_DECREF(value);
                        return ptr::null_mut();
                    }
                }
                ffi::Py_DECREF(value);
            }
        }
        let resolve = (*op).resolve;
        ffi::PyObject_CallFunctionObjArgs(
            resolve,
            op.cast::<PyObject>(),
            ptr::null_mut::<PyObject>(),
        )
    }
}

/// The function raised. Python decides whether that is the end: it answers with the result of
/// another implementation, raises, or says `NotImplemented` for the error as it was.
///
/// # Safety
/// As [`operator`]; an exception is set. Gives the reference to `target` back.
#[cold]
unsafe fn failed(
    op: *mut OpCall,
    target: *mut PyObject,
    args: *const *mut PyObject,
    nargs: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: references are counted as the comments of each function of CPython say.
    unsafe {
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) == 0 {
            ffi::Py_DECREF(target);
            return ptr::null_mut();
        }
        let (mut kind, mut value, mut traceback) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback);
        ffi::PyErr_NormalizeException(&raw mut kind, &raw mut value, &raw mut traceback);
        if !traceback.is_null() {
            ffi::PyException_SetTraceback(value, traceback);
        }
        let answer = ask(op, target, value, args, nargs, kwnames);
        ffi::Py_DECREF(target);
        if answer == ffi::Py_NotImplemented() {
            ffi::Py_DECREF(answer);
            ffi::PyErr_Restore(kind, value, traceback);
            return ptr::null_mut();
        }
        ffi::Py_XDECREF(kind);
        ffi::Py_XDECREF(value);
        ffi::Py_XDECREF(traceback);
        answer
    }
}

/// `op.failed(op, target, error, args, kwargs)`.
///
/// # Safety
/// As [`failed`], with the exception fetched into `error`.
unsafe fn ask(
    op: *mut OpCall,
    target: *mut PyObject,
    error: *mut PyObject,
    args: *const *mut PyObject,
    nargs: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as above; `PyTuple_SetItem` takes the reference it is given.
    unsafe {
        let positional = ffi::PyTuple_New(nargs as ffi::Py_ssize_t);
        if positional.is_null() {
            return ptr::null_mut();
        }
        for index in 0..nargs {
            let value = *args.add(index);
            ffi::Py_INCREF(value);
            ffi::PyTuple_SetItem(positional, index as ffi::Py_ssize_t, value);
        }
        let named = match keywords(args, nargs, kwnames) {
            Ok(named) if named.is_null() => ffi::PyDict_New(),
            Ok(named) => named,
            Err(()) => ptr::null_mut(),
        };
        let answer = match named.is_null() {
            true => ptr::null_mut(),
            false => ffi::PyObject_CallFunctionObjArgs(
                (*op).failed,
                op.cast::<PyObject>(),
                target,
                error,
                positional,
                named,
                ptr::null_mut::<PyObject>(),
            ),
        };
        ffi::Py_DECREF(positional);
        ffi::Py_XDECREF(named);
        answer
    }
}

/// Calls the operator named by the first argument.
///
/// # Safety
/// `slf` is a [`ManagerCall`]; the rest as in any vectorcall.
pub(super) unsafe extern "C" fn manager(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let manager = slf.cast::<ManagerCall>();
    let nargs = nargsf & !ARGUMENTS_OFFSET;
    // SAFETY: an object of this type is initialised before anybody gets it.
    unsafe {
        if nargs == 0 {
            // The name as a keyword, or not at all: Python's own rules and messages.
            return vectorcall((*manager).plain, args, nargsf, kwnames);
        }
        let name = *args;
        let op = ffi::PyDict_GetItemWithError((*manager).operators, name);
        let op = if !op.is_null() {
            ffi::Py_INCREF(op);
            op
        } else if !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        } else {
            ffi::PyObject_CallFunctionObjArgs((*manager).missing, name, ptr::null_mut::<PyObject>())
        };
        if op.is_null() {
            return ptr::null_mut();
        }
        // Without the flag: the place before the second argument holds the first.
        let result = match OpCall::is_one(op) {
            true => operator(op, args.add(1), nargs - 1, kwnames),
            false => vectorcall(op, args.add(1), nargs - 1, kwnames),
        };
        ffi::Py_DECREF(op);
        result
    }
}
