//! The launch plan of a key: a compiled kernel, and the source of each of its parameters.

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::compiled::CompiledKernel;
use super::ffi::{self, Object};
use super::key;
use super::outcome::Reason;
use super::pack::Value;

/// The source of a value for recorders: the argument with this index, or a constant object.
enum Source {
    Argument(usize),
    Object(Py<PyAny>),
}

/// The source of a parameter: the argument with this index, or the bits of a constant.
enum Slot {
    Argument(usize),
    Word(u64),
}

/// A global that the kernel uses: the dictionary it is in, its name, its value.
type Global = (Py<PyDict>, Py<PyString>, Py<PyAny>);

/// The index that stands for the grid among the arguments of [`LaunchPlan::meta`].
const GRID: isize = -1;

/// The plan of all launches with one key. `torch_fl.launcher` makes it from:
///
/// * `kernel`, Triton's compiled kernel, and `compiled`, the [`CompiledKernel`] of it;
/// * `passed`: for each parameter of the kernel `(argument, None)` or `(-1, constant)`;
/// * `every`: the same for each parameter of the function, for recorders;
/// * `result`: the result of the call;
/// * `meta`: the dictionary that a grid function is called with, and `told`: the `(name, argument)` of its
///   entries that differ from call to call; the argument -1 is the grid;
/// * `globals`: `(dictionary, name, value)` of each global that the kernel uses;
/// * `caches`: the dictionaries the kernel was found in; when one shrinks, the plan is forgotten;
/// * `kept`: the objects whose identity is part of keys.
#[pyclass(frozen, module = "flagos._core")]
pub struct LaunchPlan {
    kernel: Py<PyAny>,
    pub(super) compiled: Py<CompiledKernel>,
    passed: Box<[Slot]>,
    every: Box<[Source]>,
    pub(super) result: Py<PyAny>,
    meta: Py<PyDict>,
    told: Box<[(Py<PyString>, isize)]>,
    globals: Box<[Global]>,
    pub(super) caches: Vec<Py<PyDict>>,
    kept: Vec<Py<PyAny>>,
}

#[pymethods]
impl LaunchPlan {
    #[new]
    #[pyo3(signature = (*, kernel, compiled, passed, every, result, meta, told, globals, caches, kept))]
    #[allow(clippy::too_many_arguments)] // a keyword each in Python
    fn new(
        kernel: Py<PyAny>,
        compiled: Py<CompiledKernel>,
        passed: Vec<(isize, Bound<'_, PyAny>)>,
        every: Vec<(isize, Py<PyAny>)>,
        result: Py<PyAny>,
        meta: Py<PyDict>,
        told: Vec<(Py<PyString>, isize)>,
        globals: Vec<Global>,
        caches: Vec<Py<PyDict>>,
        kept: Vec<Py<PyAny>>,
    ) -> PyResult<Self> {
        let types = &compiled.get().types;
        if types.len() != passed.len() {
            let (types, passed) = (types.len(), passed.len());
            return Err(PyValueError::new_err(format!(
                "{passed} sources for {types} parameters"
            )));
        }
        let passed = passed
            .iter()
            .zip(types)
            .map(|((argument, constant), kind)| {
                if let Ok(argument) = usize::try_from(*argument) {
                    return Ok(Slot::Argument(argument));
                }
                let word = key::value_of(constant).and_then(|value| kind.pack(value));
                let word = word.ok_or_else(|| {
                    PyValueError::new_err(format!("the constant {constant:?} for a {kind:?}"))
                })?;
                Ok(Slot::Word(word))
            });
        let passed = passed.collect::<PyResult<Box<[_]>>>()?;
        let every = every.into_iter().map(|(argument, object)| {
            usize::try_from(argument).map_or(Source::Object(object), Source::Argument)
        });
        Ok(Self {
            kernel,
            passed,
            every: every.collect(),
            compiled,
            result,
            meta,
            told: told.into(),
            globals: globals.into(),
            caches,
            kept,
        })
    }

    // The kernels of a function refer to the function, whose cache refers to the plan.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kernel)?;
        visit.call(&self.compiled)?;
        visit.call(&self.result)?;
        visit.call(&self.meta)?;
        for source in &self.every {
            if let Source::Object(object) = source {
                visit.call(object)?;
            }
        }
        for (dict, name, value) in &self.globals {
            visit.call(dict)?;
            visit.call(name)?;
            visit.call(value)?;
        }
        self.caches.iter().try_for_each(|dict| visit.call(dict))?;
        self.kept.iter().try_for_each(|object| visit.call(object))
    }
}

impl LaunchPlan {
    /// Fails when a global that the kernel uses is another object than when the plan was made.
    #[inline]
    pub fn globals_hold(&self) -> Result<(), Reason> {
        for (dict, name, value) in &self.globals {
            // SAFETY: every launch holds the GIL; a dictionary and a string.
            if unsafe { ffi::item(dict.as_ptr(), name.as_ptr()) } != value.as_ptr() {
                return Err(Reason::Globals);
            }
        }
        Ok(())
    }

    /// The dictionary that a grid function is called with.
    pub fn meta<'py>(
        &self,
        py: Python<'py>,
        grid: Object,
        arguments: &[Object],
    ) -> PyResult<Bound<'py, PyDict>> {
        let meta = self.meta.bind(py).copy()?;
        for (name, argument) in &self.told {
            let value = match *argument {
                GRID => grid,
                index => arguments[index.unsigned_abs()],
            };
            // SAFETY: alive as long as the call.
            meta.set_item(name, unsafe { Bound::from_borrowed_ptr(py, value) })?;
        }
        Ok(meta)
    }

    /// Writes the words of the parameters that are passed to the front of `words`.
    #[inline]
    pub fn pack(&self, values: &[Value], words: &mut [u64]) -> Result<(), Reason> {
        let types = &self.compiled.get().types;
        for ((slot, kind), word) in self.passed.iter().zip(types).zip(words) {
            *word = match *slot {
                Slot::Argument(index) => kind.pack(values[index]).ok_or(Reason::Value)?,
                Slot::Word(word) => word,
            };
        }
        Ok(())
    }

    /// Reports a launch to a recorder: `recorder(kernel, grid, stream, args)`.
    #[cold]
    pub fn record(
        &self,
        py: Python<'_>,
        recorder: &Py<PyAny>,
        grid: [u32; 3],
        stream: u64,
        arguments: &[Object],
    ) -> PyResult<()> {
        let args = self.every.iter().map(|source| match source {
            // SAFETY: alive as long as the call.
            Source::Argument(index) => unsafe {
                Bound::from_borrowed_ptr(py, arguments[*index]).unbind()
            },
            Source::Object(object) => object.clone_ref(py),
        });
        let args = PyTuple::new(py, args.collect::<Vec<_>>())?;
        let grid = (grid[0], grid[1], grid[2]);
        recorder.call1(py, (self.kernel.clone_ref(py), grid, stream, args))?;
        Ok(())
    }
}
