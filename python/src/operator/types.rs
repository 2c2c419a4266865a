//! Types of Python made from C structures, whose references the garbage collector follows.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::size_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::interpreter::{HAVE_VECTORCALL, PyVectorcall_Call};

/// The structure of a type: `repr(C)`, with a `PyObject` first, then `vectorcall` if objects can be called.
pub(super) trait Object: Sized {
    /// The type's module and name.
    const NAME: &'static CStr;
    const DOC: &'static CStr;
    /// The offsets of the structure's references.
    const REFERENCES: &'static [usize];
    /// Whether objects can be called, by the pointer right behind their header.
    const CALLED: bool;

    /// The type, null until it is created.
    fn class() -> &'static AtomicPtr<ffi::PyTypeObject>;

    /// Frees the fields that are not references.
    ///
    /// # Safety
    /// `slf` is of this type, and is not used any more.
    unsafe fn free(slf: *mut Self);
}

/// The offset of `vectorcall` in types whose objects can be called.
pub(super) const VECTORCALL_OFFSET: usize = size_of::<PyObject>();
/// `Py_TPFLAGS_DISALLOW_INSTANTIATION`, the same bit since 3.10.
const MADE_BY_FUNCTIONS: u64 = 1 << 7;

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
    // SAFETY: no reference to the object is left; the order is that of CPython's own types.
    unsafe {
        let class = ffi::Py_TYPE(slf);
        ffi::PyObject_GC_UnTrack(slf.cast());
        clear::<T>(slf);
        T::free(slf.cast());
        let free = ffi::PyType_GetSlot(class, ffi::Py_tp_free);
        let free: ffi::freefunc = std::mem::transmute(free);
        free(slf.cast());
        ffi::Py_DECREF(class.cast());
    }
}

/// An attribute that reads the field at `offset`.
pub(super) fn member(name: &'static CStr, kind: c_int, offset: usize) -> ffi::PyMemberDef {
    ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: kind,
        offset: offset as ffi::Py_ssize_t,
        flags: ffi::structmember::READONLY,
        doc: ptr::null(),
    }
}

/// Makes the type, once. Without `new`, only functions of the module make its objects.
pub(super) fn create<'py, T: Object>(
    py: Python<'py>,
    mut members: Vec<ffi::PyMemberDef>,
    repr: Option<ffi::reprfunc>,
    new: Option<ffi::newfunc>,
) -> PyResult<Bound<'py, PyAny>> {
    if T::class().load(Ordering::Acquire).is_null() {
        let mut flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC;
        let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
        let mut slots = vec![
            slot(ffi::Py_tp_doc, T::DOC.as_ptr().cast_mut().cast()),
            slot(ffi::Py_tp_traverse, traverse::<T> as *mut c_void),
            slot(ffi::Py_tp_clear, clear::<T> as *mut c_void),
            slot(ffi::Py_tp_dealloc, deallocate::<T> as *mut c_void),
        ];
        if T::CALLED {
            let offset = ffi::structmember::T_PYSSIZET;
            members.push(member(c"__vectorcalloffset__", offset, VECTORCALL_OFFSET));
            slots.push(slot(ffi::Py_tp_call, PyVectorcall_Call as *mut c_void));
            flags |= HAVE_VECTORCALL as std::ffi::c_ulong;
        }
        if let Some(repr) = repr {
            slots.push(slot(ffi::Py_tp_repr, repr as *mut c_void));
        }
        match new {
            Some(new) => slots.push(slot(ffi::Py_tp_new, new as *mut c_void)),
            None => flags |= MADE_BY_FUNCTIONS as std::ffi::c_ulong,
        }
        // SAFETY: all zero is the end of the list.
        members.push(unsafe { std::mem::zeroed() });
        // Leaked, because the type keeps pointing at the members.
        let members = Box::leak(members.into_boxed_slice());
        slots.push(slot(ffi::Py_tp_members, members.as_mut_ptr().cast()));
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
    }
    let class = T::class().load(Ordering::Acquire).cast();
    // SAFETY: the reference of `PyType_FromSpec` is never given back.
    Ok(unsafe { Bound::from_borrowed_ptr(py, class) })
}

/// A new object, zeroed behind its header, which the garbage collector already follows.
pub(super) fn allocate<T: Object>(py: Python<'_>) -> PyResult<*mut T> {
    let class = T::class().load(Ordering::Acquire);
    // SAFETY: the type was created when the module was; the result is of the type or null.
    let object = unsafe { ffi::PyType_GenericAlloc(class, 0) };
    if object.is_null() {
        Err(PyErr::fetch(py))
    } else {
        Ok(object.cast())
    }
}

/// The object as one of the type, or null. No subclass has to be considered, because the types cannot be derived from.
#[inline]
pub(super) fn cast<T: Object>(object: *mut PyObject) -> *mut T {
    // SAFETY: every object has a type.
    let class = unsafe { ffi::Py_TYPE(object) };
    if class == T::class().load(Ordering::Relaxed) {
        object.cast()
    } else {
        ptr::null_mut()
    }
}

/// The object as one of the type; TypeError for an object of another type.
pub(super) fn expect<T: Object>(object: &Bound<'_, PyAny>) -> PyResult<*mut T> {
    let found = cast::<T>(object.as_ptr());
    if !found.is_null() {
        return Ok(found);
    }
    let name = object.get_type().name()?;
    let wanted = T::NAME.to_string_lossy();
    Err(PyTypeError::new_err(format!(
        "expected a {wanted}, got a {name}"
    )))
}
