//! The module `torch_fl._C`, which serves the C++ shim to Python: the library that was compiled for the torch that is
//! imported.
#![allow(non_snake_case)] // the module is called `_C`, as torch calls its own

use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::exceptions::{PyImportError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

mod shim;
mod views;

use shim::opened;

/// Turns a message of the shim into an error and frees the message; null is success.
fn take_message(shim: &shim::Shim, message: *mut c_char) -> Result<(), String> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: the shim returns a NUL-terminated string that is ours until freed.
    let text = unsafe { CStr::from_ptr(message) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: allocated by the shim, freed once.
    unsafe { (shim.free)(message) };
    Err(text)
}

/// Opens the shim at `path` for the functions of this module. The torch that it was compiled for must be imported.
/// Idempotent.
///
/// Raises ImportError when it cannot be opened, or another one is open.
#[pyfunction]
fn open_shim(path: PathBuf) -> PyResult<()> {
    shim::open(&path).map_err(PyImportError::new_err)
}

/// Registers the flagos device with torch, served as the vendor's description says. `api` is
/// `flagos._core.api_capsule()`. Idempotent.
///
/// Raises RuntimeError when the core's interface does not match or another plugin owns PrivateUse1.
#[pyfunction]
fn register(api: &Bound<'_, PyCapsule>) -> PyResult<()> {
    let shim = opened()?;
    let pointer = api.pointer_checked(Some(c"flagos.FlagosApi"))?;
    // SAFETY: the capsule of that name holds the core's table, which lives as long as the process.
    take_message(shim, unsafe { (shim.register)(pointer.as_ptr()) })
        .map_err(PyRuntimeError::new_err)
}

/// The callback of [`watch_device_names`]; none while names are not watched.
static ON_REQUEST: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Calls the callback of [`watch_device_names`]. The error is the text of the exception.
fn call_on_request() -> Result<(), String> {
    // The lock is not held while Python runs, because the callback may come back here.
    let called = Python::try_attach(|py| {
        let on_request = ON_REQUEST
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .as_ref()
            .map(|on_request| on_request.clone_ref(py));
        on_request.map_or(Ok(()), |on_request| {
            on_request
                .call0(py)
                .map(drop)
                .map_err(|error| error.to_string())
        })
    });
    called.unwrap_or_else(|| Err("flagos: the interpreter is ending".into()))
}

extern "C" fn on_request(message: *mut c_char, size: usize) -> i32 {
    let Err(text) = catch_unwind(call_on_request)
        .unwrap_or_else(|_| Err("flagos: registering panicked".into()))
    else {
        return 0;
    };
    let room = text.len().min(size.saturating_sub(1));
    let end = (0..=room)
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0);
    let shortened: Vec<u8> = text.as_bytes()[..end]
        .iter()
        .copied()
        .filter(|&byte| byte != 0)
        .collect();
    if size > 0 {
        // SAFETY: the caller gives `size` writable bytes, and `shortened` with its end fits.
        unsafe {
            std::ptr::copy_nonoverlapping(shortened.as_ptr().cast(), message, shortened.len());
            *message.add(shortened.len()) = 0;
        }
    }
    1
}

/// Lets torch call `callback` before it reads a device string that names flagos, from any thread, until
/// `watch_device_names(None)` says that the device has its name. An exception of the callback is raised there,
/// as RuntimeError.
///
/// Raises RuntimeError when this torch reads device strings in a way that cannot be watched.
#[pyfunction]
#[pyo3(signature = (callback))]
fn watch_device_names(callback: Option<Py<PyAny>>) -> PyResult<()> {
    let shim = opened()?;
    let on_request: Option<shim::OnRequest> = callback.is_some().then_some(on_request);
    let previous = std::mem::replace(
        &mut *ON_REQUEST
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner),
        callback,
    );
    drop(previous); // without the lock: its end may run Python, which may come back here
    // SAFETY: `on_request` is a function of this module, which is never unloaded.
    take_message(shim, unsafe { (shim.watch_device_names)(on_request) })
        .map_err(PyRuntimeError::new_err)
}

/// Makes torch read `cuda` in device strings as `flagos`, in every thread and for good. Idempotent.
///
/// Raises RuntimeError when this torch reads device strings in a way that cannot be redirected.
#[pyfunction]
fn alias_cuda() -> PyResult<()> {
    let shim = opened()?;
    // SAFETY: the shim is open.
    take_message(shim, unsafe { (shim.alias_cuda)() }).map_err(PyRuntimeError::new_err)
}

/// Registers the operators behind the backend `flagos` of torch.distributed. `api` is
/// `flagos._core.comm_capsule()`. Idempotent.
///
/// Raises RuntimeError when the interface of the collectives does not match.
#[pyfunction]
fn open_comm(api: &Bound<'_, PyCapsule>) -> PyResult<()> {
    let shim = opened()?;
    let pointer = api.pointer_checked(Some(c"flagos.FlagosCommApi"))?;
    // SAFETY: the capsule of that name holds the table, which lives as long as the process.
    take_message(shim, unsafe { (shim.open_comm)(pointer.as_ptr()) })
        .map_err(PyRuntimeError::new_err)
}

/// An operator that runs on flagos: its name, the reason why the native device has no kernel for it if it has none, and
/// whether it can be run on copies of its arguments on the CPU.
type RegisteredOp = (String, Option<String>, bool);

extern "C" fn push_op(
    name: *const c_char,
    why_not: *const c_char,
    on_cpu_too: i32,
    context: *mut c_void,
) {
    // SAFETY: `context` is the Vec of `registered_ops`.
    let ops = unsafe { &mut *context.cast::<Vec<RegisteredOp>>() };
    let text = |given: *const c_char| {
        // SAFETY: the shim gives NUL-terminated strings, or NULL for the reason, which is not asked for its text.
        unsafe { CStr::from_ptr(given) }
            .to_string_lossy()
            .into_owned()
    };
    let why_not = (!why_not.is_null()).then(|| text(why_not));
    ops.push((text(name), why_not, on_cpu_too != 0));
}

/// Every `aten::name.overload` that runs on flagos, in order of registration, with the reason why the native device has
/// no kernel for it (None if it has one), and whether it can be run on copies of its arguments on the CPU.
#[pyfunction]
fn registered_ops() -> PyResult<Vec<RegisteredOp>> {
    let shim = opened()?;
    let mut ops: Vec<RegisteredOp> = Vec::new();
    // SAFETY: `push_op` gets back the pointer to `ops`, which outlives the call.
    unsafe { (shim.each_op)(push_op, (&raw mut ops).cast()) };
    Ok(ops)
}

extern "C" fn push_name(name: *const c_char, context: *mut c_void) {
    // SAFETY: `context` is the Vec of `composite_ops`.
    let names = unsafe { &mut *context.cast::<Vec<String>>() };
    // SAFETY: the shim gives a NUL-terminated string.
    let name = unsafe { CStr::from_ptr(name) };
    names.push(name.to_string_lossy().into_owned());
}

/// Operators without a kernel on flagos for strided tensors, which torch composes of other operators.
#[pyfunction]
fn composite_ops() -> PyResult<Vec<String>> {
    let shim = opened()?;
    let mut names: Vec<String> = Vec::new();
    // SAFETY: `push_name` gets back the pointer to `names`, which outlives the call.
    unsafe { (shim.each_composite)(push_name, (&raw mut names).cast()) };
    Ok(names)
}

/// The version of torch that the open shim was compiled against.
#[pyfunction]
fn torch_version() -> PyResult<String> {
    let shim = opened()?;
    // SAFETY: a static string.
    Ok(unsafe { CStr::from_ptr((shim.torch_version)()) }
        .to_string_lossy()
        .into_owned())
}

/// The native part of `torch_fl`.
#[pymodule]
fn _C(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(open_shim, module)?)?;
    module.add_function(wrap_pyfunction!(register, module)?)?;
    module.add_function(wrap_pyfunction!(watch_device_names, module)?)?;
    module.add_function(wrap_pyfunction!(alias_cuda, module)?)?;
    module.add_function(wrap_pyfunction!(open_comm, module)?)?;
    module.add_function(wrap_pyfunction!(registered_ops, module)?)?;
    module.add_function(wrap_pyfunction!(composite_ops, module)?)?;
    module.add_function(wrap_pyfunction!(torch_version, module)?)?;
    module.add_class::<views::Views>()?;
    Ok(())
}
