//! The C table of collectives, and its engines.

use std::ffi::{CStr, CString, c_void};

use flagos_comm::abi;
use flagos_core::env::{self, Env};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::IntoPython as _;

/// The capsule's name, which an adapter passes to `PyCapsule_GetPointer`.
const CAPSULE_NAME: &CStr = c"flagos.FlagosCommApi";

#[pyfunction]
fn comm_capsule(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let table: *const abi::FlagosCommApi = abi::api();
    // SAFETY: the GIL is held; name and table live as long as the process, so that the capsule
    // needs no destructor; readers get the table through a const pointer.
    unsafe {
        let capsule = pyo3::ffi::PyCapsule_New(
            table.cast_mut().cast::<c_void>(),
            CAPSULE_NAME.as_ptr(),
            None,
        );
        Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
    }
}

/// Every engine, with what its library lacks on devices of the vendor.
#[pyfunction]
#[pyo3(signature = (library = None, vendor = String::new()))]
fn comm_engines(py: Python<'_>, library: Option<String>, vendor: String) -> PyResult<Vec<Engine>> {
    let library = library.map(CString::new).transpose();
    let library = library.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(py.detach(|| {
        flagos_comm::engine::ENGINES
            .into_iter()
            .map(|name| {
                let config = flagos_comm::Config {
                    engine: Some(name.to_owned()),
                    library: library
                        .as_ref()
                        .map(|path| path.to_string_lossy().into_owned().into()),
                    vendor: vendor.clone(),
                    device: -1,
                    vendor_engine: None,
                    rank: 0,
                    size: 1,
                    group: String::new(),
                    timeout: std::time::Duration::ZERO,
                    window: 4096,
                };
                match name {
                    flagos_comm::engine::SHM => (
                        name,
                        true,
                        "built in; processes of one host, host memory".to_owned(),
                        vec![],
                    ),
                    _ => match flagos_comm::library::probe(name, &config) {
                        Ok(found) => {
                            let lacking = found.lacking.iter().map(lacking).collect();
                            (name, true, found.library, lacking)
                        }
                        Err(error) => (name, false, error.to_string(), vec![]),
                    },
                }
            })
            .collect()
    }))
}

/// `(name, usable, details, lacking)`; the details are the library and its version, or why it is unusable.
type Engine = (&'static str, bool, String, Vec<Lacking>);

/// `(dtype, operations, whether these are all of it, whether they are gathered)`.
type Lacking = (&'static str, Vec<&'static str>, bool, bool);

fn lacking(one: &flagos_comm::library::Lacking) -> Lacking {
    let ops = one.ops.iter().map(|op| op.name()).collect();
    (one.dtype.name(), ops, one.has_none, one.gathered)
}

/// `(library, operation, dtype, calls, bytes)` of the reductions that this process has gathered for.
#[pyfunction]
fn comm_gathered() -> Vec<(String, &'static str, &'static str, u64, u64)> {
    flagos_comm::gathered::of_process()
        .into_iter()
        .map(|(one, count)| (one.library, one.op, one.dtype, count.calls, count.bytes))
        .collect()
}

/// `(engine, library, window in bytes, dump folder)` of the environment; empty or 0 for a variable that is not set.
#[pyfunction]
fn comm_settings(py: Python<'_>) -> PyResult<(String, String, u64, String)> {
    let here = Env::from_process();
    let text = |var: &env::Var| here.get(var.name).unwrap_or_default().to_owned();
    let window = here.bytes(&env::COMM_WINDOW).into_python(py)?;
    Ok((
        text(&env::COMM_ENGINE),
        text(&env::COMM_LIBRARY),
        window.unwrap_or(0),
        text(&env::COMM_DUMP),
    ))
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("comm_abi_version", abi::FLAGOS_COMM_ABI_VERSION)?;
    module.add("comm_gathered_most", flagos_comm::communicator::GATHERED)?;
    module.add_function(wrap_pyfunction!(comm_capsule, module)?)?;
    module.add_function(wrap_pyfunction!(comm_engines, module)?)?;
    module.add_function(wrap_pyfunction!(comm_gathered, module)?)?;
    module.add_function(wrap_pyfunction!(comm_settings, module)?)
}
