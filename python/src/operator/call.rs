//! The call of an operator: compare the epoch, call the remembered function; or ask again for the function.

use std::ptr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::epoch::{self, CONTEXTS};
use super::interpreter::{ARGUMENTS_OFFSET, PyContextVar_Get, call, keywords, vectorcall};
use super::layout::{ByName, Operator, Override, Served};
use super::plan::{self, Arguments, Chosen};
use super::types::cast;
use crate::dispatch_log;
use crate::errors::is_unsupported;

/// Calls an operator.
///
/// # Safety
/// `slf` is an [`Operator`], and the other arguments are those of a vectorcall.
pub(super) unsafe extern "C" fn operator(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let op = slf.cast::<Operator>();
    let epoch = epoch::now();
    // SAFETY: an object of this type is initialised before Python code gets it. The call owns a reference
    // to the target, which may be replaced while it runs.
    unsafe {
        let Chosen { target, serving } = if (*op).epoch == epoch {
            remembered(op)
        } else {
            find_target(op, epoch)
        };
        if target.is_null() {
            return ptr::null_mut();
        }
        let result = vectorcall(target, args, nargsf, kwnames);
        if result.is_null() {
            let arguments = Arguments {
                values: args,
                positional: nargsf & !ARGUMENTS_OFFSET,
                names: kwnames,
            };
            let answer = match serving.as_ref() {
                Some(serving) => declined(op, serving, arguments),
                None => failed(op, target, arguments),
            };
            ffi::Py_DECREF(target);
            return answer;
        }
        ffi::Py_DECREF(target);
        match serving.as_ref() {
            Some(serving) => {
                serving.count();
                if (*op).logged {
                    log(op, serving, result)
                } else {
                    result
                }
            }
            None => result,
        }
    }
}

/// The function that the operator remembers.
///
/// # Safety
/// `op` is an [`Operator`] that has resolved.
#[inline]
unsafe fn remembered(op: *mut Operator) -> Chosen {
    // SAFETY: the caller's promise.
    unsafe {
        let (target, serving) = ((*op).target, (*op).serving);
        ffi::Py_INCREF(target);
        Chosen { target, serving }
    }
}

/// A new reference to the function to call, null with an exception set.
///
/// # Safety
/// `op` is an [`Operator`].
#[cold]
unsafe fn find_target(op: *mut Operator, epoch: u64) -> Chosen {
    let nobody = Chosen {
        target: ptr::null_mut(),
        serving: ptr::null(),
    };
    let plain = epoch & !CONTEXTS;
    // SAFETY: the caller's promise; the interpreter's lock is held in any call.
    unsafe {
        let asks_the_plan = (*op).resolve.is_null();
        if epoch != plain {
            let over = if asks_the_plan {
                // A policy context changes only operators whose adapter resolves them.
                ptr::null_mut()
            } else {
                match current_override() {
                    Ok(over) => over,
                    Err(()) => return nobody,
                }
            };
            if over.is_null() {
                if (*op).epoch == plain {
                    return remembered(op);
                }
            } else {
                let found = under(over, op, plain);
                ffi::Py_DECREF(over);
                match found {
                    Ok(target) if target.is_null() => {}
                    Ok(target) => return Chosen { target, ..nobody },
                    Err(()) => return nobody,
                }
            }
        }
        if asks_the_plan {
            return Python::attach(|py| {
                plan::choose(py, op).unwrap_or_else(|error| {
                    error.restore(py);
                    nobody
                })
            });
        }
        let target = call((*op).resolve, [op.cast::<PyObject>()]);
        Chosen { target, ..nobody }
    }
}

/// A new reference to the value of the context variable, null without a value; `Err` with an exception set.
///
/// # Safety
/// The interpreter's lock is held.
unsafe fn current_override() -> Result<*mut PyObject, ()> {
    let mut value = ptr::null_mut();
    // SAFETY: the variable exists since the module does.
    let done = unsafe { PyContextVar_Get(epoch::variable(), ptr::null_mut(), &raw mut value) };
    if done < 0 { Err(()) } else { Ok(value) }
}

/// A new reference to the function that an operator resolved to under `over`, null when there is none of this
/// epoch; `Err` with an exception set.
///
/// # Safety
/// `op` is an [`Operator`], and the interpreter's lock is held.
unsafe fn under(over: *mut PyObject, op: *mut Operator, epoch: u64) -> Result<*mut PyObject, ()> {
    let over = cast::<Override>(over);
    // SAFETY: an override has a table from the start.
    unsafe {
        if over.is_null() || (*over).epoch != epoch {
            return Ok(ptr::null_mut());
        }
        let target = ffi::PyDict_GetItemWithError((*over).table, op.cast());
        if target.is_null() && !ffi::PyErr_Occurred().is_null() {
            return Err(());
        }
        ffi::Py_XINCREF(target);
        Ok(target)
    }
}

/// Writes to the dispatch log. Returns `result`, or null with the exception of writing.
///
/// # Safety
/// `op` is an [`Operator`], and `result` a reference that the caller owns and gives away.
#[cold]
unsafe fn log(op: *mut Operator, serving: &Served, result: *mut PyObject) -> *mut PyObject {
    Python::attach(|py| {
        let name = plan::name_of(py, op);
        match name.and_then(|name| dispatch_log::write(py, &name, &serving.backend)) {
            Ok(()) => result,
            Err(error) => {
                error.restore(py);
                // SAFETY: the caller's promise.
                unsafe { ffi::Py_DECREF(result) };
                ptr::null_mut()
            }
        }
    })
}

/// Handles an exception of the implementation that the plan chose. If it declines the call, another
/// implementation serves the call.
///
/// # Safety
/// As [`operator`]; an exception is set.
#[cold]
unsafe fn declined(op: *mut Operator, serving: &Served, arguments: Arguments) -> *mut PyObject {
    Python::attach(|py| {
        let error = PyErr::fetch(py);
        let answer = if is_unsupported(py, &error) {
            // SAFETY: the caller's promise.
            unsafe { plan::take_over(py, op, serving, error, arguments) }
        } else {
            Err(error)
        };
        match answer {
            Ok(result) => result.into_ptr(),
            Err(error) => {
                error.restore(py);
                ptr::null_mut()
            }
        }
    })
}

/// Handles an exception of the function that an adapter chose. The adapter's `failed` returns the result of
/// another implementation, raises, or returns `NotImplemented` to raise the error as it was.
///
/// # Safety
/// As [`operator`]; an exception is set.
#[cold]
unsafe fn failed(op: *mut Operator, target: *mut PyObject, arguments: Arguments) -> *mut PyObject {
    // SAFETY: references are counted as the comments of each function of CPython say.
    unsafe {
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) == 0 {
            return ptr::null_mut();
        }
        let (mut kind, mut value, mut traceback) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback);
        ffi::PyErr_NormalizeException(&raw mut kind, &raw mut value, &raw mut traceback);
        if !traceback.is_null() {
            ffi::PyException_SetTraceback(value, traceback);
        }
        let answer = ask(op, target, value, arguments);
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

/// Calls `op.failed(op, target, error, args, kwargs)`.
///
/// # Safety
/// As [`failed`], with the exception fetched into `error`.
unsafe fn ask(
    op: *mut Operator,
    target: *mut PyObject,
    error: *mut PyObject,
    arguments: Arguments,
) -> *mut PyObject {
    let Arguments {
        values,
        positional: count,
        names,
    } = arguments;
    // SAFETY: as above; `PyTuple_SetItem` takes the reference it is given.
    unsafe {
        let positional = ffi::PyTuple_New(count as ffi::Py_ssize_t);
        if positional.is_null() {
            return ptr::null_mut();
        }
        for index in 0..count {
            let value = *values.add(index);
            ffi::Py_INCREF(value);
            ffi::PyTuple_SetItem(positional, index as ffi::Py_ssize_t, value);
        }
        let named = match keywords(values, count, names) {
            Ok(named) if named.is_null() => ffi::PyDict_New(),
            Ok(named) => named,
            Err(()) => ptr::null_mut(),
        };
        let answer = if named.is_null() {
            ptr::null_mut()
        } else {
            call(
                (*op).failed,
                [op.cast::<PyObject>(), target, error, positional, named],
            )
        };
        ffi::Py_DECREF(positional);
        ffi::Py_XDECREF(named);
        answer
    }
}

/// Calls the operator named by the first argument.
///
/// # Safety
/// `slf` is a [`ByName`], and the other arguments are those of a vectorcall.
pub(super) unsafe extern "C" fn by_name(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let by_name = slf.cast::<ByName>();
    let nargs = nargsf & !ARGUMENTS_OFFSET;
    // SAFETY: an object of this type is initialised before Python code gets it.
    unsafe {
        if nargs == 0 {
            // Without a positional name, `plain` applies Python's own rules and messages.
            return vectorcall((*by_name).plain, args, nargsf, kwnames);
        }
        let name = *args;
        let op = ffi::PyDict_GetItemWithError((*by_name).operators, name);
        let op = if !op.is_null() {
            ffi::Py_INCREF(op);
            op
        } else if !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        } else {
            call((*by_name).missing, [name])
        };
        if op.is_null() {
            return ptr::null_mut();
        }
        // The flag is dropped, because the place before the second argument holds the first.
        let result = if !cast::<Operator>(op).is_null() {
            operator(op, args.add(1), nargs - 1, kwnames)
        } else {
            vectorcall(op, args.add(1), nargs - 1, kwnames)
        };
        ffi::Py_DECREF(op);
        result
    }
}
