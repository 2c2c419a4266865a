//! Native views of a compiled graph's arguments, kept from call to call.
//!
//! A graph has an argument for each weight, so what is done for one of them counts: this walks them without the
//! interpreter.
use std::ffi::c_void;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};

use crate::shim::opened;

/// An argument of a graph that has a view.
struct Argument {
    /// Its index among the arguments.
    index: usize,
    view: Py<PyAny>,
    /// References to the view that are this object's and torch's own, which differ between versions of torch.
    references: isize,
}

/// Views of some arguments of a graph. Those who call it see to it that one call at a time uses them.
#[pyclass(frozen, module = "torch_fl._C")]
pub struct Views {
    address: i64,
    arguments: Vec<Argument>,
    /// `torch.Tensor`'s base, and the place of the C++ tensor in an object of it, in words.
    tensor: Py<PyType>,
    place: usize,
}

/// A word of a Python object.
///
/// # Safety
/// The object has that many words.
unsafe fn word(object: &Bound<'_, PyAny>, place: usize) -> *const c_void {
    // SAFETY: as above; objects are aligned as pointers are.
    unsafe { *object.as_ptr().cast::<*const c_void>().add(place) }
}

fn references_to(object: &Bound<'_, PyAny>) -> isize {
    // SAFETY: alive.
    unsafe { pyo3::ffi::Py_REFCNT(object.as_ptr()) }
}

/// Whether an object is of a type or of a subtype, by the object itself: `isinstance` asks the metaclass.
fn is_of(object: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> bool {
    // SAFETY: both are alive.
    unsafe { pyo3::ffi::PyObject_TypeCheck(object.as_ptr(), class.as_type_ptr()) != 0 }
}

#[pymethods]
impl Views {
    /// `address` is what `torch.ops.flagos.views_create` gave for the tensors at `indices` of `arguments`, and becomes
    /// this object's own. `views` are `torch.ops.flagos.views_tensors` of it, which nothing else holds yet, and
    /// `tensor` is `torch._C.TensorBase`.
    ///
    /// Raises ValueError if these do not belong together, and RuntimeError if this torch keeps its tensors elsewhere
    /// than in a word of their Python objects.
    #[new]
    fn new(
        address: i64,
        arguments: &Bound<'_, PyList>,
        indices: Vec<usize>,
        views: &Bound<'_, PyList>,
        tensor: Bound<'_, PyType>,
    ) -> PyResult<Self> {
        let mut made = Self {
            address, // first: from here on it is given back whatever happens
            arguments: Vec::with_capacity(indices.len()),
            tensor: tensor.clone().unbind(),
            place: 0,
        };
        if indices.len() != views.len() {
            return Err(PyValueError::new_err(format!(
                "{} views for {} arguments",
                views.len(),
                indices.len()
            )));
        }
        let given = indices
            .iter()
            .map(|&index| arguments.get_item(index))
            .collect::<PyResult<Vec<_>>>()?;
        for one in &given {
            if !is_of(one, &tensor) {
                return Err(PyValueError::new_err(
                    "an argument with a view is no tensor",
                ));
            }
        }
        let shim = opened()?;
        let size: usize = tensor.getattr("__basicsize__")?.extract()?;
        let places = size / size_of::<*const c_void>();
        let holds = |place: usize| {
            (0..).zip(&given).all(|(number, one)| {
                // SAFETY: every object of a subtype of `tensor` has these words; the address is alive.
                unsafe { word(one, place) == (shim.views_original)(address, number) }
            })
        };
        made.place = (0..places).find(|&place| holds(place)).ok_or_else(|| {
            PyRuntimeError::new_err("this torch does not keep a tensor in its Python object")
        })?;
        for (index, view) in indices.into_iter().zip(views) {
            let references = references_to(&view) - 1; // without that of the list
            made.arguments.push(Argument {
                index,
                view: view.unbind(),
                references,
            });
        }
        Ok(made)
    }

    /// Puts the views in the place of the tensors of `arguments`, if each can be pointed at its tensor. Returns whether
    /// it did; otherwise `arguments` is as it was.
    fn enter(&self, arguments: &Bound<'_, PyList>) -> PyResult<bool> {
        let tensor = self.tensor.bind(arguments.py());
        let mut tensors = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            let one = arguments.get_item(argument.index)?;
            if !is_of(&one, tensor) {
                return Ok(false);
            }
            // SAFETY: a tensor's object has that many words. Its tensor lives as long as `arguments` has the object.
            tensors.push(unsafe { word(&one, self.place) });
        }
        // SAFETY: the address is alive as long as `self`, and the tensors as long as `arguments`.
        if unsafe { (opened()?.views_point)(self.address, tensors.as_ptr()) } == 0 {
            return Ok(false);
        }
        self.replace(arguments)?;
        Ok(true)
    }

    /// Puts the views, which have their memory, in the place of their tensors.
    fn replace(&self, arguments: &Bound<'_, PyList>) -> PyResult<()> {
        for argument in &self.arguments {
            arguments.set_item(argument.index, argument.view.clone_ref(arguments.py()))?;
        }
        Ok(())
    }

    /// Takes the memory from the views. Returns false, and does nothing, if somebody still holds one of them.
    fn rest(&self, py: Python<'_>) -> PyResult<bool> {
        let held =
            |argument: &Argument| references_to(argument.view.bind(py)) > argument.references;
        if self.arguments.iter().any(held) {
            return Ok(false);
        }
        // SAFETY: the address is alive as long as `self`.
        Ok(unsafe { (opened()?.views_rest)(self.address) } != 0)
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        if let Ok(shim) = opened() {
            // SAFETY: the address is this object's own, and is given back once.
            unsafe { (shim.views_destroy)(self.address) };
        }
    }
}
