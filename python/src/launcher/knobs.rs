//! Triton's knobs that forbid native launches: launch hooks, debugging, another driver than the one declared.

use std::sync::atomic::{AtomicPtr, Ordering};

use flagos_core::abi;
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::ffi::{self, Object};
use super::key;
use super::memory::Memory;
use super::outcome::Reason;

/// The objects that hold Triton's knobs, as `triton.knobs` has them. Every launch reads them, so that a change
/// takes effect with the next launch.
pub struct Knobs {
    /// `knobs.runtime.__dict__`.
    runtime: Py<PyDict>,
    /// `knobs.compilation.__dict__`.
    compilation: Py<PyDict>,
    /// For each launch hook its name, its chain, and the chain's list of functions.
    hooks: [(Object, Py<PyAny>, Py<PyList>); 2],
    debug: Object,
    instrumentation: Object,
    /// `triton.runtime.driver.__dict__`, and the driver found there.
    drivers: Py<PyDict>,
    active_name: Object,
    active: Py<PyAny>,
    get_device: Py<PyAny>,
    get_stream: Py<PyAny>,
    memory: Memory,
}

// SAFETY: interned names, alive as long as the process.
unsafe impl Send for Knobs {}
// SAFETY: as above; the objects are only touched with the GIL held.
unsafe impl Sync for Knobs {}

/// The knobs; never freed, because readers may hold them.
static CURRENT: AtomicPtr<Knobs> = AtomicPtr::new(std::ptr::null_mut());

/// The knobs, once they are declared.
#[inline]
pub fn current() -> Option<&'static Knobs> {
    // SAFETY: NULL, or set once and never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

impl Knobs {
    /// Fails with the reason why a launch must not be native now. Debugging is a reason only for functions that Triton
    /// compiles on demand (`compiles`).
    #[inline]
    pub fn check(&self, compiles: bool) -> Result<(), Reason> {
        // SAFETY: every launch holds the GIL; dictionaries, lists and interned names.
        unsafe {
            if ffi::item(self.drivers.as_ptr(), self.active_name) != self.active.as_ptr() {
                return Err(Reason::Driver);
            }
            let runtime = self.runtime.as_ptr();
            for (name, chain, calls) in &self.hooks {
                let own = ffi::item(runtime, *name);
                let empty = if own.is_null() || own == chain.as_ptr() {
                    py_ffi::PyList_Size(calls.as_ptr()) == 0
                } else {
                    own == py_ffi::Py_None()
                };
                if !empty {
                    return Err(Reason::LaunchHooks);
                }
            }
            if compiles {
                let debug = ffi::item(runtime, self.debug);
                if !debug.is_null() && debug != py_ffi::Py_False() {
                    return Err(Reason::Debug);
                }
                let mode = ffi::item(self.compilation.as_ptr(), self.instrumentation);
                let off = mode.is_null()
                    || (py_ffi::PyUnicode_Check(mode) != 0
                        && py_ffi::PyUnicode_GetLength(mode) == 0);
                if !off {
                    return Err(Reason::Debug);
                }
            }
        }
        Ok(())
    }

    /// The memory that the driver's kernels reach.
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The current device.
    #[inline]
    pub fn device(&self, py: Python<'_>) -> PyResult<u64> {
        // SAFETY: the GIL is held and the function is alive.
        unsafe { ffi::call_none(py, self.get_device.as_ptr()) }?.extract()
    }

    /// The current stream of a device.
    #[inline]
    pub fn stream(&self, py: Python<'_>, device: u64) -> PyResult<u64> {
        let device = device.into_pyobject(py)?;
        // SAFETY: the GIL is held and both are alive.
        unsafe { ffi::call_one(py, self.get_stream.as_ptr(), device.as_ptr()) }?.extract()
    }
}

/// Declares Triton's knobs: the instances' dictionaries of `knobs.runtime` and `knobs.compilation`, the
/// two chains of launch hooks with their lists, the dictionary of `triton.runtime.driver`, the active
/// driver, its functions for the current device and stream, the name of its backend, and torch's `DeviceType` of
/// the backend's tensors.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // one object each
fn launch_knobs(
    runtime: Py<PyDict>,
    compilation: Py<PyDict>,
    enter: (Py<PyAny>, Py<PyList>),
    exit: (Py<PyAny>, Py<PyList>),
    drivers: Py<PyDict>,
    active: Py<PyAny>,
    get_device: Py<PyAny>,
    get_stream: Py<PyAny>,
    backend: &str,
    device_type: i32,
) {
    let knobs = Knobs {
        runtime,
        compilation,
        hooks: [
            (ffi::interned(c"launch_enter_hook"), enter.0, enter.1),
            (ffi::interned(c"launch_exit_hook"), exit.0, exit.1),
        ],
        debug: ffi::interned(c"debug"),
        instrumentation: ffi::interned(c"instrumentation_mode"),
        drivers,
        active_name: ffi::interned(c"_active"),
        active,
        get_device,
        get_stream,
        // Without a launcher nothing is launched natively, which `CompiledKernel` says.
        memory: Memory::new(device_type, abi::triton_launcher(backend).ok()),
    };
    CURRENT.store(Box::into_raw(Box::new(knobs)), Ordering::Release);
}

/// Declares the types of compile-time constants that never change. True the first time.
#[pyfunction]
fn launch_constants(types: Vec<Bound<'_, PyAny>>) -> bool {
    key::declare_constants(&types)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(launch_knobs, module)?)?;
    module.add_function(wrap_pyfunction!(launch_constants, module)?)
}
