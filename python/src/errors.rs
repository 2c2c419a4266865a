//! `flagos_core::Error` as Python exceptions.
//!
//! Every exception derives from `flagos.FlagosError`, and also from the built-in class that a caller without
//! knowledge of flagos would catch. The classes are made at run time, because `create_exception!` takes a
//! single base.

use flagos_core::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

struct Classes {
    base: Py<PyType>,
    config: Py<PyType>,
    invalid_argument: Py<PyType>,
    out_of_memory: Py<PyType>,
    device: Py<PyType>,
    unsupported: Py<PyType>,
    forked: Py<PyType>,
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

impl Classes {
    fn create(py: Python<'_>) -> PyResult<Self> {
        let builtins = py.import("builtins")?;
        let base = new_class(
            py,
            "FlagosError",
            "Base of every error raised by flagos.",
            vec![builtins.getattr("Exception")?],
        )?;
        let derived = |name, doc, builtin: &str| {
            let bases = vec![base.bind(py).clone().into_any(), builtins.getattr(builtin)?];
            new_class(py, name, doc, bases)
        };
        Ok(Self {
            config: derived(
                "ConfigError",
                "A configuration file, an environment variable or a route is wrong.",
                "ValueError",
            )?,
            invalid_argument: derived(
                "InvalidArgumentError",
                "An argument is out of range, or a name is not known.",
                "ValueError",
            )?,
            out_of_memory: derived(
                "OutOfMemoryError",
                "The device has no memory left for the request; the message lists the memory in use.",
                "RuntimeError",
            )?,
            device: derived(
                "DeviceError",
                "The device, its driver or a piece of queued work failed.",
                "RuntimeError",
            )?,
            unsupported: derived(
                "UnsupportedError",
                "Not supported here; the call has changed nothing.",
                "NotImplementedError",
            )?,
            forked: derived(
                "ForkedError",
                "The process is a forked child of one that had initialised flagos.",
                "RuntimeError",
            )?,
            base,
        })
    }

    fn of(&self, kind: ErrorKind) -> &Py<PyType> {
        match kind {
            ErrorKind::Config => &self.config,
            ErrorKind::InvalidArgument => &self.invalid_argument,
            ErrorKind::OutOfMemory => &self.out_of_memory,
            ErrorKind::Device => &self.device,
            ErrorKind::Unsupported => &self.unsupported,
            ErrorKind::Forked => &self.forked,
            // NotInitialized and Internal have no class of their own: no caller handles them in particular.
            _ => &self.base,
        }
    }
}

/// `class name(*bases)` in the module `flagos`, where users (and pickle) find it.
fn new_class(
    py: Python<'_>,
    name: &str,
    doc: &str,
    bases: Vec<Bound<'_, PyAny>>,
) -> PyResult<Py<PyType>> {
    let namespace = PyDict::new(py);
    namespace.set_item("__doc__", doc)?;
    namespace.set_item("__module__", "flagos")?;
    // The values for instances that Python code makes; `to_python` sets others.
    namespace.set_item("kind", "")?;
    namespace.set_item("hint", py.None())?;
    let class = py
        .get_type::<PyType>()
        .call1((name, PyTuple::new(py, bases)?, namespace))?;
    Ok(class.cast_into::<PyType>()?.unbind())
}

/// Adds the exception classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let classes = classes(py)?;
    module.add("FlagosError", &classes.base)?;
    module.add("ConfigError", &classes.config)?;
    module.add("InvalidArgumentError", &classes.invalid_argument)?;
    module.add("OutOfMemoryError", &classes.out_of_memory)?;
    module.add("DeviceError", &classes.device)?;
    module.add("UnsupportedError", &classes.unsupported)?;
    module.add("ForkedError", &classes.forked)
}

/// The Python exception for `error`, with `kind` and `hint` as attributes.
pub fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let made = classes(py).and_then(|classes| {
        let value = classes.of(error.kind()).bind(py).call1((error.report(),))?;
        value.setattr("kind", error.kind().as_str())?;
        value.setattr("hint", error.hint())?;
        Ok(PyErr::from_value(value))
    });
    made.unwrap_or_else(|failure| failure)
}

/// An UnsupportedError that says `message`.
pub fn unsupported(py: Python<'_>, message: &str) -> PyErr {
    match classes(py) {
        Ok(classes) => {
            PyErr::from_type(classes.unsupported.bind(py).clone(), (message.to_owned(),))
        }
        Err(failure) => failure,
    }
}

/// Whether an exception is an UnsupportedError.
pub fn is_unsupported(py: Python<'_>, error: &PyErr) -> bool {
    classes(py).is_ok_and(|classes| error.is_instance(py, classes.unsupported.bind(py)))
}

fn classes(py: Python<'_>) -> PyResult<&Classes> {
    CLASSES.get_or_try_init(py, || Classes::create(py))
}

/// `?` from core results into Python results.
pub trait IntoPython<T> {
    /// Turns the core's error into the matching exception.
    fn into_python(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoPython<T> for flagos_core::Result<T> {
    fn into_python(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_python(py, &error))
    }
}
