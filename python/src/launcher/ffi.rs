//! Calls of Python that the limited API of 3.10 lacks, or that are slower through pyo3, each with its invariant.

use std::ffi::{CStr, c_char};

use pyo3::ffi;
use pyo3::prelude::*;

/// A borrowed object, alive as long as the caller keeps it alive.
pub type Object = *mut ffi::PyObject;

unsafe extern "C" {
    /// Exported with this signature by every Python since 3.9, although the limited API lacks it.
    /// (`PyObject_Vectorcall` is an inline function before 3.11.)
    fn PyObject_VectorcallDict(
        callable: Object,
        args: *const Object,
        nargsf: usize,
        kwdict: Object,
    ) -> Object;
}

/// The type of an object.
///
/// # Safety
/// The object is alive.
#[inline]
pub unsafe fn type_of(object: Object) -> usize {
    // SAFETY: the caller's promise.
    unsafe { ffi::Py_TYPE(object) as usize }
}

/// The value of a key in a dictionary, borrowed; NULL, with no exception set, when the key is missing.
///
/// # Safety
/// The GIL is held; `dict` is a dictionary and `key` a string.
#[inline]
pub unsafe fn item(dict: Object, key: Object) -> Object {
    // SAFETY: the caller's promise. Comparing strings raises nothing.
    unsafe { ffi::PyDict_GetItemWithError(dict, key) }
}

/// Calls an object with one argument.
///
/// # Safety
/// The GIL is held; both objects are alive.
#[inline]
pub unsafe fn call_one<'py>(
    py: Python<'py>,
    callable: Object,
    argument: Object,
) -> PyResult<Bound<'py, PyAny>> {
    let arguments = [argument];
    // SAFETY: the caller's promise; one argument, and no names.
    unsafe {
        let result = PyObject_VectorcallDict(callable, arguments.as_ptr(), 1, std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, result)
    }
}

/// Calls an object without arguments.
///
/// # Safety
/// The GIL is held and the object is alive.
#[inline]
pub unsafe fn call_none(py: Python<'_>, callable: Object) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the caller's promise; no argument, and no names.
    unsafe {
        let result = PyObject_VectorcallDict(callable, std::ptr::null(), 0, std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, result)
    }
}

/// An interned name, which is never freed.
pub fn interned(name: &CStr) -> Object {
    // SAFETY: called with the GIL held, at the set-up of the module; a NUL-terminated string.
    unsafe { ffi::PyUnicode_InternFromString(name.as_ptr().cast::<c_char>()) }
}

/// The arguments of a vectorcall: the positional ones, then the named ones.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// Every value.
    pub values: &'a [Object],
    /// The number of positional values.
    pub positional: usize,
    /// A tuple of strings, or NULL.
    pub names: Object,
}

impl<'a> Arguments<'a> {
    /// The arguments of a METH_FASTCALL | METH_KEYWORDS function.
    ///
    /// # Safety
    /// Python passed the three values to the function, and they outlive `'a`.
    #[inline]
    pub unsafe fn new(values: *const Object, positional: isize, names: Object) -> Self {
        let positional = positional.unsigned_abs();
        let count = if names.is_null() {
            0
        } else {
            // SAFETY: Python passes a tuple.
            unsafe { ffi::PyTuple_Size(names) }.unsigned_abs()
        };
        let values = if values.is_null() {
            &[]
        } else {
            // SAFETY: Python passes as many values as there are positional ones and names.
            unsafe { std::slice::from_raw_parts(values, positional + count) }
        };
        Self {
            values,
            positional,
            names,
        }
    }

    /// The name of a value behind the positional ones, borrowed.
    ///
    /// # Safety
    /// The GIL is held, and `index` is below the number of names.
    #[inline]
    pub unsafe fn name(&self, index: usize) -> Object {
        // SAFETY: the caller's promise.
        unsafe { ffi::PyTuple_GetItem(self.names, index as isize) }
    }

    /// The number of named values.
    #[inline]
    pub fn named(&self) -> usize {
        self.values.len() - self.positional
    }

    /// Positional arguments as a tuple, and the others as a dictionary.
    pub fn packed<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(
        Bound<'py, pyo3::types::PyTuple>,
        Bound<'py, pyo3::types::PyDict>,
    )> {
        // SAFETY: Python keeps the arguments alive for the length of the call.
        let object = |&value: &Object| unsafe { Bound::from_borrowed_ptr(py, value) };
        let (positional, named) = self.values.split_at(self.positional);
        let args = pyo3::types::PyTuple::new(py, positional.iter().map(object))?;
        let kwargs = pyo3::types::PyDict::new(py);
        for (index, value) in named.iter().enumerate() {
            // SAFETY: one name for each value that is not positional.
            let name = unsafe { Bound::from_borrowed_ptr(py, self.name(index)) };
            kwargs.set_item(name, object(value))?;
        }
        Ok((args, kwargs))
    }
}
