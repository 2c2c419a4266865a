//! One core in a process: a second one would not have the registrations of the first.

use std::ffi::{CStr, c_void};
use std::path::PathBuf;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// The attribute of `sys` in which the loaded copy leaves its path.
const MARK: &str = "_flagos_core";

/// Raises ImportError when another file of this module was loaded into the process before.
pub fn require_only_copy(py: Python<'_>) -> PyResult<()> {
    let Some(here) = own_file() else {
        return Ok(()); // linked into the program, so there is no other file
    };
    let sys = py.import("sys")?;
    let Some(first) = sys.getattr_opt(MARK)? else {
        return sys.setattr(MARK, here);
    };
    let first: PathBuf = first.extract()?;
    if first == here {
        return Ok(());
    }
    let (first, here) = (first.display(), here.display());
    Err(PyImportError::new_err(format!(
        "flagos._core is loaded already, from {first}; {here} would be a second core beside it: \
         install flagos once, or correct sys.path"
    )))
}

/// The file this code was loaded from.
fn own_file() -> Option<PathBuf> {
    // SAFETY: a Dl_info of zeros is one of null pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = require_only_copy as *const c_void;
    // SAFETY: the address is one of this library, and `info` is written to.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a C string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(name.to_str().ok()?);
    Some(path.canonicalize().unwrap_or(path))
}
