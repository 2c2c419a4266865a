//! The class `Operator` with its methods, and the functions by which an adapter makes operators.

use std::mem::offset_of;
use std::ptr;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use flagos_core::registry::OpName;

use super::interpreter::PyInstanceMethod_New;
use super::layout::{ByName, Counts, Operator, Override};
use super::types::{allocate, create, expect, member};
use super::{call, epoch, plan};
use crate::errors::IntoPython as _;
use crate::implementations::register_impl;

/// Every operator that asks the plan, by name. Operators stay for the life of the process.
static OPERATORS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
/// [`construct`] as a Python function.
static CONSTRUCT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn operators(py: Python<'_>) -> &Bound<'_, PyDict> {
    OPERATORS
        .get_or_init(py, || PyDict::new(py).unbind())
        .bind(py)
}

/// The operator `name`, whose implementations the plan chooses from.
///
/// An adapter that chooses by itself gives `resolve` and `failed`. `resolve(op)` returns the function to call.
/// `failed(op, target, error, args, kwargs)` is called when that function raises, and returns the result of
/// another one, or NotImplemented to raise the error as it was.
#[pyfunction]
#[pyo3(name = "Operator", signature = (name, *, resolve=None, failed=None))]
fn construct<'py>(
    py: Python<'py>,
    name: Bound<'py, PyString>,
    resolve: Option<Bound<'py, PyAny>>,
    failed: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if resolve.is_some() != failed.is_some() {
        return Err(PyTypeError::new_err("resolve and failed go together"));
    }
    let asks_the_plan = resolve.is_none();
    if asks_the_plan && operators(py).contains(&name)? {
        let name = name.repr()?;
        let message = format!("there is an operator {} already", name.to_str()?);
        return Err(PyValueError::new_err(message));
    }
    let text = name.to_str()?;
    OpName::parse(text).into_python(py)?;
    let short = text.split_once("::").map_or(text, |(_, short)| short);
    let short = PyString::new(py, short);
    let op = allocate::<Operator>(py)?;
    let reference =
        |object: Option<Bound<'py, PyAny>>| object.map_or(ptr::null_mut(), Bound::into_ptr);
    // SAFETY: a new object, which only the collector can see, and the collector skips null.
    let made = unsafe {
        (*op).vectorcall = call::operator;
        (*op).resolve = reference(resolve);
        (*op).failed = reference(failed);
        (*op).name = name.clone().into_ptr();
        (*op).short = short.into_ptr();
        if asks_the_plan {
            (*op).served = Box::into_raw(Box::default());
        }
        Bound::from_owned_ptr(py, op.cast())
    };
    if asks_the_plan {
        operators(py).set_item(name, &made)?;
    }
    Ok(made)
}

unsafe extern "C" fn new(
    _class: *mut ffi::PyTypeObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    Python::attach(|py| {
        let construct = CONSTRUCT.get(py).map_or(ptr::null_mut(), Py::as_ptr);
        // SAFETY: the function is there before the type is, and the arguments are those of a call.
        unsafe { ffi::PyObject_Call(construct, args, kwargs) }
    })
}

unsafe extern "C" fn describe(slf: *mut PyObject) -> *mut PyObject {
    // SAFETY: the representation of an `Operator`, whose name is a string.
    unsafe { ffi::PyUnicode_FromFormat(c"<operator %S>".as_ptr(), (*slf.cast::<Operator>()).name) }
}

/// The operator and its counts, for a method that only operators of the plan have.
fn of_plan<'py>(op: &'py Bound<'_, PyAny>) -> PyResult<(*mut Operator, &'py Counts)> {
    let pointer = expect::<Operator>(op)?;
    // SAFETY: the counts, where there are any, live as long as the operator.
    match unsafe { (*pointer).served.as_ref() } {
        Some(counts) => Ok((pointer, counts)),
        None => Err(PyTypeError::new_err(format!(
            "the adapter of {} chooses its implementations, and not the plan",
            op.repr()?
        ))),
    }
}

/// Registers `fn`.
///
/// `unavailable` is the reason why it can never be chosen, `on_request` the reason why only a route of the
/// operator's own chooses it. Explanations show both.
#[pyfunction]
#[pyo3(signature = (op, r#fn, *, impl_id, kind, vendor=None, backend=None, priority=0, unavailable=None, on_request=None))]
#[allow(clippy::too_many_arguments)] // a keyword each in Python
fn offer(
    op: &Bound<'_, PyAny>,
    r#fn: Bound<'_, PyAny>,
    impl_id: &str,
    kind: &str,
    vendor: Option<&str>,
    backend: Option<&str>,
    priority: i32,
    unavailable: Option<&str>,
    on_request: Option<&str>,
) -> PyResult<()> {
    let py = op.py();
    let (pointer, _) = of_plan(op)?;
    let name = plan::name_of(py, pointer)?;
    register_impl(
        py,
        &name,
        impl_id,
        kind,
        Some(r#fn),
        vendor,
        backend,
        priority,
        unavailable,
        on_request,
        Vec::new(),
        None,
    )
    .map(drop)
}

/// The id of the implementation that calls go to now.
#[pyfunction]
fn winner(op: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = op.py();
    let (pointer, _) = of_plan(op)?;
    let chosen = plan::choose(py, pointer)?;
    // SAFETY: the target is a reference of its own, and the counts live as long as the operator.
    unsafe {
        drop(Bound::from_owned_ptr(py, chosen.target));
        Ok((*chosen.serving).impl_id.to_string())
    }
}

/// The function that was registered as `impl_id`.
#[pyfunction]
fn implementation(op: &Bound<'_, PyAny>, impl_id: &str) -> PyResult<Py<PyAny>> {
    let (pointer, _) = of_plan(op)?;
    plan::implementation(op.py(), pointer, impl_id)
}

/// The number of calls that each implementation served since the counters were reset.
#[pyfunction]
#[pyo3(name = "calls")]
fn calls_of<'py>(op: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let (_, counts) = of_plan(op)?;
    let calls = PyDict::new(op.py());
    for (impl_id, count) in counts.calls() {
        calls.set_item(&*impl_id, count)?;
    }
    Ok(calls)
}

/// Sets the counts to zero.
#[pyfunction]
fn reset(op: &Bound<'_, PyAny>) -> PyResult<()> {
    of_plan(op)?.1.reset();
    Ok(())
}

/// Remembers the function that `resolve` found, with the epoch that was read before resolving.
#[pyfunction]
#[pyo3(name = "bind")]
fn bind_target(op: &Bound<'_, PyAny>, epoch: u64, target: Bound<'_, PyAny>) -> PyResult<()> {
    let op = expect::<Operator>(op)?;
    // SAFETY: the interpreter's lock is held: no call reads the fields meanwhile. The old target is
    // released last, because its finaliser may call the operator.
    unsafe {
        (*op).epoch = epoch & !epoch::CONTEXTS;
        let old = ptr::replace(&raw mut (*op).target, target.into_ptr());
        ffi::Py_XDECREF(old);
    }
    Ok(())
}

/// The number of calls of every operator that asks the plan and was called, by name.
pub(crate) fn calls(py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
    let mut all = Vec::new();
    for (name, op) in operators(py).iter() {
        let (_, counts) = of_plan(&op)?;
        let calls = counts.calls().iter().map(|(_, calls)| calls).sum();
        if calls > 0 {
            all.push((name.extract()?, calls));
        }
    }
    Ok(all)
}

/// Sets the counts of every operator to zero.
pub(crate) fn reset_calls(py: Python<'_>) -> PyResult<()> {
    operators(py).values().iter().try_for_each(|op| reset(&op))
}

/// An object that calls the operator named by its first argument. `operators` has those that were called
/// before, `missing(name)` returns any other, and `plain` takes a call without a positional argument.
#[pyfunction]
fn by_name<'py>(
    py: Python<'py>,
    operators: Bound<'py, PyDict>,
    missing: Bound<'py, PyAny>,
    plain: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let made = allocate::<ByName>(py)?;
    // SAFETY: as in `construct`.
    unsafe {
        (*made).vectorcall = call::by_name;
        (*made).operators = operators.into_ptr();
        (*made).missing = missing.into_ptr();
        (*made).plain = plain.into_ptr();
        Ok(Bound::from_owned_ptr(py, made.cast()))
    }
}

/// A value for the context variable.
#[pyfunction]
fn policy_override<'py>(py: Python<'py>, policy: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let over = allocate::<Override>(py)?;
    // SAFETY: as in `construct`.
    unsafe {
        (*over).table = PyDict::new(py).into_ptr();
        (*over).policy = policy.into_ptr();
        Ok(Bound::from_owned_ptr(py, over.cast()))
    }
}

/// Remembers the function that an operator resolved to under an override.
#[pyfunction]
fn bind_under(
    over: &Bound<'_, PyAny>,
    op: Bound<'_, PyAny>,
    epoch: u64,
    target: Bound<'_, PyAny>,
) -> PyResult<()> {
    let pointer = expect::<Override>(over)?;
    expect::<Operator>(&op)?;
    let epoch = epoch & !epoch::CONTEXTS;
    // SAFETY: the interpreter's lock is held; `over` keeps the table alive.
    let table = unsafe { Bound::from_borrowed_ptr(over.py(), (*pointer).table) };
    let table = table.cast_into::<PyDict>()?;
    // SAFETY: as above.
    unsafe {
        if (*pointer).epoch != epoch {
            (*pointer).epoch = epoch;
            table.clear();
        }
    }
    table.set_item(op, target)
}

/// A function as a method of a class that is made from a structure.
fn method<'py>(function: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    // SAFETY: a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, PyInstanceMethod_New(function.as_ptr())) }
}

/// Adds the class to the module, and the functions for adapters to `submodule`.
pub(super) fn register(
    module: &Bound<'_, PyModule>,
    submodule: &Bound<'_, PyModule>,
) -> PyResult<()> {
    let py = module.py();
    let object = ffi::structmember::T_OBJECT_EX;
    let construct = wrap_pyfunction!(construct, submodule)?.into_any();
    let _ = CONSTRUCT.set(py, construct.unbind());
    let class = create::<Operator>(
        py,
        vec![
            member(c"name", object, offset_of!(Operator, name)),
            member(c"__name__", object, offset_of!(Operator, short)),
            member(c"target", object, offset_of!(Operator, target)),
        ],
        Some(describe),
        Some(new),
    )?;
    let property = py.import("builtins")?.getattr("property")?;
    class.setattr(
        "offer",
        method(wrap_pyfunction!(offer, submodule)?.into_any())?,
    )?;
    class.setattr(
        "winner",
        property.call1((wrap_pyfunction!(winner, submodule)?,))?,
    )?;
    class.setattr(
        "calls",
        property.call1((wrap_pyfunction!(calls_of, submodule)?,))?,
    )?;
    class.setattr(
        "reset",
        method(wrap_pyfunction!(reset, submodule)?.into_any())?,
    )?;
    let function = wrap_pyfunction!(implementation, submodule)?;
    class.setattr("implementation", method(function.into_any())?)?;
    class.setattr(
        "bind",
        method(wrap_pyfunction!(bind_target, submodule)?.into_any())?,
    )?;
    module.add("Operator", class)?;
    create::<ByName>(
        py,
        vec![member(c"operators", object, offset_of!(ByName, operators))],
        None,
        None,
    )?;
    create::<Override>(
        py,
        vec![member(c"policy", object, offset_of!(Override, policy))],
        None,
        None,
    )?;
    submodule.add_function(wrap_pyfunction!(by_name, submodule)?)?;
    submodule.add_function(wrap_pyfunction!(policy_override, submodule)?)?;
    submodule.add_function(wrap_pyfunction!(bind_under, submodule)?)
}
