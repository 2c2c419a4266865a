//! The methods that replace `run` and `__getitem__` of an intercepted class.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use flagos_core::env::{self, Env};
use pyo3::exceptions::PyValueError;
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;

use crate::errors::IntoPython as _;

use super::call;
use super::ffi::{self, Arguments, Object};
use super::interception::{self, Interception, Kind, Names};

/// Runs a function that Python calls; a panic becomes an exception.
fn guarded(function: impl FnOnce(Python<'_>) -> PyResult<Object>) -> Object {
    Python::attach(|py| {
        let outcome = catch_unwind(AssertUnwindSafe(|| function(py)));
        let error = match outcome {
            Ok(Ok(object)) => return object,
            Ok(Err(error)) => error,
            Err(_) => pyo3::exceptions::PySystemError::new_err("flagos: a panic in the launcher"),
        };
        error.restore(py);
        std::ptr::null_mut()
    })
}

/// `run(self, *args, grid, warmup, **kwargs)`.
unsafe extern "C" fn run<const KIND: usize>(
    function: Object,
    values: *const Object,
    positional: isize,
    names: Object,
) -> Object {
    guarded(|py| {
        // SAFETY: what Python passed.
        let arguments = unsafe { Arguments::new(values, positional, names) };
        // SAFETY: the GIL is held, and Python keeps everything alive for the call.
        let result =
            unsafe { call::launch(py, interception::of(KIND)?, function, None, arguments)? };
        Ok(result.into_ptr())
    })
}

/// `self[grid]`: a function that launches with this grid.
unsafe extern "C" fn get_item<const KIND: usize>(function: Object, grid: Object) -> Object {
    // SAFETY: the GIL is held; two live objects and a definition that lives as long as the process.
    unsafe {
        let pair = py_ffi::PyTuple_Pack(2, function, grid);
        if pair.is_null() {
            return pair;
        }
        let definition = (&raw const LAUNCH[KIND].0).cast_mut();
        let made = py_ffi::PyCFunction_NewEx(definition, pair, std::ptr::null_mut());
        py_ffi::Py_DECREF(pair);
        made
    }
}

/// The call of the function that `self[grid]` returned.
unsafe extern "C" fn launch<const KIND: usize>(
    pair: Object,
    values: *const Object,
    positional: isize,
    names: Object,
) -> Object {
    guarded(|py| {
        // SAFETY: what Python passed, and the pair made by `get_item`.
        let (arguments, function, grid) = unsafe {
            (
                Arguments::new(values, positional, names),
                py_ffi::PyTuple_GetItem(pair, 0),
                py_ffi::PyTuple_GetItem(pair, 1),
            )
        };
        // SAFETY: the GIL is held, and Python keeps everything alive for the call.
        let result =
            unsafe { call::launch(py, interception::of(KIND)?, function, Some(grid), arguments)? };
        Ok(result.into_ptr())
    })
}

/// The definition of a method, which Python only reads.
struct Definition(py_ffi::PyMethodDef);
// SAFETY: constant.
unsafe impl Sync for Definition {}

type FastCall = unsafe extern "C" fn(Object, *const Object, isize, Object) -> Object;
const FAST: c_int = py_ffi::METH_FASTCALL | py_ffi::METH_KEYWORDS;

const fn fast(name: &'static std::ffi::CStr, method: FastCall) -> Definition {
    Definition(py_ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: py_ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: method,
        },
        ml_flags: FAST,
        ml_doc: std::ptr::null(),
    })
}

const fn item(method: unsafe extern "C" fn(Object, Object) -> Object) -> Definition {
    Definition(py_ffi::PyMethodDef {
        ml_name: c"__getitem__".as_ptr(),
        ml_meth: py_ffi::PyMethodDefPointer {
            PyCFunction: method,
        },
        ml_flags: py_ffi::METH_O,
        ml_doc: std::ptr::null(),
    })
}

static RUN: [Definition; 2] = [fast(c"run", run::<0>), fast(c"run", run::<1>)];
static GET_ITEM: [Definition; 2] = [item(get_item::<0>), item(get_item::<1>)];
static LAUNCH: [Definition; 2] = [fast(c"launch", launch::<0>), fast(c"launch", launch::<1>)];

/// The methods `run` and `__getitem__` that stand in for those of a class (`"jit"` or `"entry"`), given the
/// original `run`. `bind(function, positional, names)` returns the roles of a call's arguments, and
/// `learn(function, args, kwargs, names, result, whole)` makes a plan from a call on the original path.
#[pyfunction]
fn launch_intercept<'py>(
    py: Python<'py>,
    kind: &str,
    class: &Bound<'py, PyAny>,
    original: Py<PyAny>,
    bind: Py<PyAny>,
    learn: Py<PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let kind = match kind {
        "jit" => Kind::Jit,
        "entry" => Kind::Entry,
        _ => {
            let message = format!("`{kind}` is not a kind of function; use `jit` or `entry`");
            return Err(PyValueError::new_err(message));
        }
    };
    let class = class.cast::<pyo3::types::PyType>()?;
    let method = |definition: &'static Definition| {
        let definition = (&raw const definition.0).cast_mut();
        // SAFETY: a class, and a definition that lives as long as the process and that Python only reads.
        unsafe {
            let made = py_ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
            Bound::from_owned_ptr_or_err(py, made)
        }
    };
    let run = method(&RUN[kind as usize])?;
    let get_item = method(&GET_ITEM[kind as usize])?;
    interception::install(Interception {
        kind,
        original,
        learn,
        bind,
        names: Names {
            run: ffi::interned(c"run"),
            pre_run_hooks: ffi::interned(c"pre_run_hooks"),
            cache: ffi::interned(c"_flagos_launches"),
        },
        replacement: run.clone().unbind(),
    });
    Ok((run, get_item))
}

/// Whether `FLAGOS_LAUNCHER` allows native launches.
#[pyfunction]
fn launch_enabled(py: Python<'_>) -> PyResult<bool> {
    let flag = Env::from_process().flag(&env::LAUNCHER).into_python(py)?;
    Ok(flag.unwrap_or(true))
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(launch_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(launch_intercept, module)?)
}
