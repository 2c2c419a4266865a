//! Native views of a compiled graph's arguments, kept from call to call.
//!
//! A graph has an argument for each weight, so what is done for one of them counts: this walks them without the
//! interpreter.
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::shim::shim;

/// An argument of a graph that has a view.
struct Argument {
    /// Its index among the arguments.
    index: usize,
    /// The identity of its tensor, which the shim knows to live on.
    tensor: usize,
    view: Py<PyAny>,
    /// References to the view that are this object's and torch's own, which differ between versions of torch.
    references: isize,
}

/// Views of some arguments of a graph. Those who call it see to it that one call at a time uses them.
#[pyclass(frozen, module = "torch_fl._C")]
pub struct Views {
    address: i64,
    arguments: Vec<Argument>,
}

#[pymethods]
impl Views {
    /// `address` is what `torch.ops.flagos.views_create` gave for the tensors at `indices` of `arguments`, and becomes
    /// this object's own. `views` are `torch.ops.flagos.views_tensors` of it, which nothing else holds yet.
    #[new]
    fn new(
        address: i64,
        arguments: &Bound<'_, PyList>,
        indices: Vec<usize>,
        views: &Bound<'_, PyList>,
    ) -> PyResult<Self> {
        if indices.len() != views.len() {
            return Err(PyValueError::new_err(format!(
                "{} views for {} arguments",
                views.len(),
                indices.len()
            )));
        }
        let arguments = indices
            .into_iter()
            .zip(views)
            .map(|(index, view)| {
                let tensor = arguments.get_item(index)?.as_ptr() as usize;
                let view = view.unbind();
                let references = view.get_refcnt(arguments.py()) - 1; // without that of the list
                Ok(Argument {
                    index,
                    tensor,
                    view,
                    references,
                })
            })
            .collect::<PyResult<_>>()?;
        Ok(Self { address, arguments })
    }

    /// Puts the views in the place of their tensors, if `arguments` has the same ones as before and each view can be
    /// pointed at its tensor. Returns whether it did; otherwise `arguments` is as it was.
    fn enter(&self, arguments: &Bound<'_, PyList>) -> PyResult<bool> {
        for argument in &self.arguments {
            if arguments.get_item(argument.index)?.as_ptr() as usize != argument.tensor {
                return Ok(false);
            }
        }
        let shim = shim().map_err(PyRuntimeError::new_err)?;
        // SAFETY: the address is alive as long as `self`.
        if unsafe { (shim.views_point)(self.address) } == 0 {
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
        let held = |argument: &Argument| argument.view.get_refcnt(py) > argument.references;
        if self.arguments.iter().any(held) {
            return Ok(false);
        }
        let shim = shim().map_err(PyRuntimeError::new_err)?;
        // SAFETY: the address is alive as long as `self`.
        Ok(unsafe { (shim.views_rest)(self.address) } != 0)
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        if let Ok(shim) = shim() {
            // SAFETY: the address is this object's own, and is given back once.
            unsafe { (shim.views_destroy)(self.address) };
        }
    }
}
