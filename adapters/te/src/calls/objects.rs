//! The types of the objects: a few references each, known to the garbage collector.

use std::ffi::{c_int, c_uint, c_void, CStr};
use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::interpreter::{PyVectorcall_Call, Vectorcall, HAVE_VECTORCALL};
use super::{epoch, vectorcall};

/// One operator of one manager.
#[repr(C)]
pub(super) struct OpCall {
    base: PyObject,
    vectorcall: Vectorcall,
    /// When `target` was found; 0 never was.
    pub(super) epoch: u64,
    pub(super) target: *mut PyObject,
    /// `resolve(op)` returns the function to call and may remember it with `bind`.
    pub(super) resolve: *mut PyObject,
    /// `failed(op, target, error, args, kwargs)`; see [`vectorcall`].
    pub(super) failed: *mut PyObject,
    name: *mut PyObject,
}

/// `manager.call`.
#[repr(C)]
pub(super) struct ManagerCall {
    base: PyObject,
    vectorcall: Vectorcall,
    /// Name → [`OpCall`].
    pub(super) operators: *mut PyObject,
    /// `missing(name)` returns the [`OpCall`] of a name that is not in `operators`.
    pub(super) missing: *mut PyObject,
    /// Takes the call when there is no positional argument.
    pub(super) plain: *mut PyObject,
}

/// What the context variable holds: a policy, and what operators resolved to under it.
#[repr(C)]
pub(super) struct Override {
    base: PyObject,
    /// When the entries of `table` were found.
    pub(super) epoch: u64,
    /// [`OpCall`] → function.
    pub(super) table: *mut PyObject,
    policy: *mut PyObject,
}

/// A type of this file: where the references of its objects are.
trait Object: Sized {
    const NAME: &'static CStr;
    const REFERENCES: &'static [usize];
    const VECTORCALL: Option<Vectorcall>;
    fn class() -> &'static AtomicPtr<ffi::PyTypeObject>;
}

macro_rules! object {
    ($type:ident, $name:literal, $vectorcall:expr, [$($field:ident),*]) => {
        impl Object for $type {
            const NAME: &'static CStr = $name;
            const REFERENCES: &'static [usize] = &[$(offset_of!($type, $field)),*];
            const VECTORCALL: Option<Vectorcall> = $vectorcall;
            fn class() -> &'static AtomicPtr<ffi::PyTypeObject> {
                static CLASS: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());
                &CLASS
            }
        }
    };
}

object!(
    OpCall,
    c"flagos._core.te.OpCall",
    Some(vectorcall::operator),
    [target, resolve, failed, name]
);
object!(
    ManagerCall,
    c"flagos._core.te.ManagerCall",
    Some(vectorcall::manager),
    [operators, missing, plain]
);
object!(Override, c"flagos._core.te.Override", None, [table, policy]);

/// Where `vectorcall` stands in the types that have one: right behind the header.
const VECTORCALL_OFFSET: usize = size_of::<PyObject>();
const _: () = assert!(offset_of!(OpCall, vectorcall) == VECTORCALL_OFFSET);
const _: () = assert!(offset_of!(ManagerCall, vectorcall) == VECTORCALL_OFFSET);

unsafe extern "C" fn traverse<T: Object>(
    slf: *mut PyObject,
    visit: ffi::visitproc,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: the collector calls this with an object of the type, whose references are at these
    // offsets; an object of a heap type also owns a reference to the type.
    unsafe {
        let class = ffi::Py_TYPE(slf).cast::<PyObject>();
        let fields = T::REFERENCES
            .iter()
            .map(|offset| *slf.byte_add(*offset).cast::<*mut PyObject>());
        for reference in fields
            .chain([class])
            .filter(|reference| !reference.is_null())
        {
            let stop = visit(reference, arg);
            if stop != 0 {
                return stop;
            }
        }
    }
    0
}

unsafe extern "C" fn clear<T: Object>(slf: *mut PyObject) -> c_int {
    for offset in T::REFERENCES {
        // SAFETY: as in `traverse`; the field is empty before its finaliser can see the object.
        unsafe {
            let field = slf.byte_add(*offset).cast::<*mut PyObject>();
            let reference = ptr::replace(field, ptr::null_mut());
            ffi::Py_XDECREF(reference);
        }
    }
    0
}

unsafe extern "C" fn deallocate<T: Object>(slf: *mut PyObject) {
    // SAFETY: nobody has the object any more; the order is that of CPython's own types.
    unsafe {
        let class = ffi::Py_TYPE(slf);
        ffi::PyObject_GC_UnTrack(slf.cast());
        clear::<T>(slf);
        let free = ffi::PyType_GetSlot(class, ffi::Py_tp_free);
        let free: ffi::freefunc = std::mem::transmute(free);
        free(slf.cast());
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn describe(slf: *mut PyObject) -> *mut PyObject {
    // SAFETY: the representation of an `OpCall`, whose name is a string.
    unsafe {
        ffi::PyUnicode_FromFormat(c"<operator te::%S>".as_ptr(), (*slf.cast::<OpCall>()).name)
    }
}

fn member(name: &'static CStr, kind: c_int, offset: usize) -> ffi::PyMemberDef {
    ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: kind,
        offset: offset as ffi::Py_ssize_t,
        flags: ffi::structmember::READONLY,
        doc: ptr::null(),
    }
}

/// Makes the type, once.
fn create<T: Object>(
    py: Python<'_>,
    members: Vec<ffi::PyMemberDef>,
    repr: Option<ffi::reprfunc>,
) -> PyResult<()> {
    if !T::class().load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let mut members = members;
    if T::VECTORCALL.is_some() {
        members.push(member(
            c"__vectorcalloffset__",
            ffi::structmember::T_PYSSIZET,
            VECTORCALL_OFFSET,
        ));
    }
    // SAFETY: all zero is the end of the list.
    members.push(unsafe { std::mem::zeroed() });
    // The type keeps pointing at them.
    let members = Box::leak(members.into_boxed_slice());
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = vec![
        slot(ffi::Py_tp_traverse, traverse::<T> as *mut c_void),
        slot(ffi::Py_tp_clear, clear::<T> as *mut c_void),
        slot(ffi::Py_tp_dealloc, deallocate::<T> as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
    ];
    let mut flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC;
    if T::VECTORCALL.is_some() {
        slots.push(slot(ffi::Py_tp_call, PyVectorcall_Call as *mut c_void));
        flags |= HAVE_VECTORCALL as std::ffi::c_ulong;
    }
    if let Some(repr) = repr {
        slots.push(slot(ffi::Py_tp_repr, repr as *mut c_void));
    }
    slots.push(slot(0, ptr::null_mut()));
    let mut spec = ffi::PyType_Spec {
        name: T::NAME.as_ptr(),
        basicsize: size_of::<T>() as c_int,
        itemsize: 0,
        flags: flags as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the slots are functions of the right types; the name and the members are never freed.
    let class = unsafe { ffi::PyType_FromSpec(&raw mut spec) };
    if class.is_null() {
        return Err(PyErr::fetch(py));
    }
    T::class().store(class.cast(), Ordering::Release);
    Ok(())
}

/// A new object, all zero behind its header. The collector knows it already.
fn allocate<T: Object>(py: Python<'_>) -> PyResult<*mut T> {
    let class = T::class().load(Ordering::Acquire);
    // SAFETY: the type was created when the module was; the result is of the type or null.
    let object = unsafe { ffi::PyType_GenericAlloc(class, 0) };
    match object.is_null() {
        true => Err(PyErr::fetch(py)),
        false => Ok(object.cast()),
    }
}

/// Whether `object` is of the type, exactly: none of them can be derived from.
fn is<T: Object>(object: *mut PyObject) -> bool {
    // SAFETY: every object has a type.
    unsafe { ffi::Py_TYPE(object) == T::class().load(Ordering::Relaxed) }
}

fn expect<T: Object>(object: &Bound<'_, PyAny>) -> PyResult<*mut T> {
    if is::<T>(object.as_ptr()) {
        return Ok(object.as_ptr().cast());
    }
    let name = object.get_type().name()?;
    let wanted = T::NAME.to_string_lossy();
    Err(PyTypeError::new_err(format!(
        "expected a {wanted}, got a {name}"
    )))
}

impl OpCall {
    /// Whether an object is of this type.
    #[inline]
    pub(super) fn is_one(object: *mut PyObject) -> bool {
        is::<Self>(object)
    }
}

impl Override {
    /// The object as one of this type, or null.
    #[inline]
    pub(super) fn cast(object: *mut PyObject) -> *mut Self {
        match is::<Self>(object) {
            true => object.cast(),
            false => ptr::null_mut(),
        }
    }
}

/// The object that calls the operator `name`.
#[pyfunction]
fn op_call<'py>(
    py: Python<'py>,
    name: Bound<'py, pyo3::types::PyString>,
    resolve: Bound<'py, PyAny>,
    failed: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let op = allocate::<OpCall>(py)?;
    // SAFETY: new, and seen by nobody yet but the collector, for which null is nothing.
    unsafe {
        (*op).vectorcall = vectorcall::operator;
        (*op).resolve = resolve.into_ptr();
        (*op).failed = failed.into_ptr();
        (*op).name = name.into_ptr();
        Ok(Bound::from_owned_ptr(py, op.cast()))
    }
}

/// `manager.call` over the operators of a dictionary.
#[pyfunction]
fn manager_call<'py>(
    py: Python<'py>,
    operators: Bound<'py, pyo3::types::PyDict>,
    missing: Bound<'py, PyAny>,
    plain: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let manager = allocate::<ManagerCall>(py)?;
    // SAFETY: as in `op_call`.
    unsafe {
        (*manager).vectorcall = vectorcall::manager;
        (*manager).operators = operators.into_ptr();
        (*manager).missing = missing.into_ptr();
        (*manager).plain = plain.into_ptr();
        Ok(Bound::from_owned_ptr(py, manager.cast()))
    }
}

/// Remembers what an operator resolved to, as of an epoch that was read before resolving.
#[pyfunction]
fn bind(op: &Bound<'_, PyAny>, epoch: u64, target: Bound<'_, PyAny>) -> PyResult<()> {
    let op = expect::<OpCall>(op)?;
    // SAFETY: the interpreter's lock is held: no call reads the fields meanwhile. The old target is
    // released last, because its finaliser may call the operator.
    unsafe {
        (*op).epoch = epoch & !epoch::CONTEXTS;
        let old = ptr::replace(&raw mut (*op).target, target.into_ptr());
        ffi::Py_XDECREF(old);
    }
    Ok(())
}

/// A value for the context variable.
#[pyfunction]
fn policy_override<'py>(py: Python<'py>, policy: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let over = allocate::<Override>(py)?;
    // SAFETY: as in `op_call`.
    unsafe {
        (*over).table = pyo3::types::PyDict::new(py).into_ptr();
        (*over).policy = policy.into_ptr();
        Ok(Bound::from_owned_ptr(py, over.cast()))
    }
}

/// Remembers what an operator resolved to under an override.
#[pyfunction]
fn bind_under(
    over: &Bound<'_, PyAny>,
    op: Bound<'_, PyAny>,
    epoch: u64,
    target: Bound<'_, PyAny>,
) -> PyResult<()> {
    let pointer = expect::<Override>(over)?;
    expect::<OpCall>(&op)?;
    let epoch = epoch & !epoch::CONTEXTS;
    // SAFETY: the interpreter's lock is held; `over` keeps the table alive.
    let table = unsafe { Bound::from_borrowed_ptr(over.py(), (*pointer).table) };
    let table = table.cast_into::<pyo3::types::PyDict>()?;
    // SAFETY: as above.
    unsafe {
        if (*pointer).epoch != epoch {
            (*pointer).epoch = epoch;
            table.clear();
        }
    }
    table.set_item(op, target)
}

/// Adds the functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let object = ffi::structmember::T_OBJECT_EX;
    create::<OpCall>(
        py,
        vec![
            member(c"__name__", object, offset_of!(OpCall, name)),
            member(c"target", object, offset_of!(OpCall, target)),
        ],
        Some(describe),
    )?;
    create::<ManagerCall>(
        py,
        vec![member(
            c"operators",
            object,
            offset_of!(ManagerCall, operators),
        )],
        None,
    )?;
    create::<Override>(
        py,
        vec![member(c"policy", object, offset_of!(Override, policy))],
        None,
    )?;
    module.add_function(wrap_pyfunction!(op_call, module)?)?;
    module.add_function(wrap_pyfunction!(manager_call, module)?)?;
    module.add_function(wrap_pyfunction!(bind, module)?)?;
    module.add_function(wrap_pyfunction!(policy_override, module)?)?;
    module.add_function(wrap_pyfunction!(bind_under, module)?)
}
