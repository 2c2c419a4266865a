//! The C++ shim of one torch: the functions of csrc/shim.h.
use std::error::Error;
use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Registers the device because a program asks for it (shim.h).
pub type OnRequest = extern "C" fn(*mut c_char, usize) -> i32;
/// Gets one operator of [`Shim::each_op`].
pub type VisitOp = extern "C" fn(*const c_char, *const c_char, i32, *mut c_void);
/// Gets one operator of [`Shim::each_composite`].
pub type VisitComposite = extern "C" fn(*const c_char, *mut c_void);

macro_rules! functions {
    ($($field:ident = $symbol:literal: $type:ty,)*) => {
        /// The functions of the shim. Every one of them catches its exceptions.
        pub struct Shim {
            path: PathBuf,
            $(pub $field: $type,)*
        }

        impl Shim {
            fn find(path: &Path, library: &Library) -> Result<Self, String> {
                Ok(Self {
                    path: path.to_owned(),
                    // SAFETY: shim.h declares the function with this type.
                    $($field: *unsafe { library.get::<$type>($symbol) }
                        .map_err(|error| format!("{} is no shim: {}", path.display(), reason(&error)))?,)*
                })
            }
        }
    };
}

functions! {
    register = b"flagos_shim_register\0": unsafe extern "C" fn(*const c_void) -> *mut c_char,
    watch_device_names = b"flagos_shim_watch_device_names\0":
        unsafe extern "C" fn(Option<OnRequest>) -> *mut c_char,
    alias_cuda = b"flagos_shim_alias_cuda\0": unsafe extern "C" fn() -> *mut c_char,
    open_comm = b"flagos_shim_open_comm\0": unsafe extern "C" fn(*const c_void) -> *mut c_char,
    each_op = b"flagos_shim_each_op\0": unsafe extern "C" fn(VisitOp, *mut c_void),
    each_composite = b"flagos_shim_each_composite\0":
        unsafe extern "C" fn(VisitComposite, *mut c_void),
    views_original = b"flagos_shim_views_original\0":
        unsafe extern "C" fn(i64, usize) -> *const c_void,
    views_point = b"flagos_shim_views_point\0":
        unsafe extern "C" fn(i64, *const *const c_void) -> i32,
    views_rest = b"flagos_shim_views_rest\0": unsafe extern "C" fn(i64) -> i32,
    views_destroy = b"flagos_shim_views_destroy\0": unsafe extern "C" fn(i64),
    torch_version = b"flagos_shim_torch_version\0": unsafe extern "C" fn() -> *const c_char,
    free = b"flagos_shim_free\0": unsafe extern "C" fn(*mut c_char),
}

/// The error of the dynamic linker.
fn reason(error: &libloading::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

static SHIM: OnceLock<Shim> = OnceLock::new();

/// The shim that is open. The error says that none is.
pub fn shim() -> Result<&'static Shim, String> {
    SHIM.get().ok_or_else(|| {
        "no shim is open: `import torch_fl` opens the one of the torch that is imported".into()
    })
}

/// The shim that is open. Raises RuntimeError when none is.
pub fn opened() -> PyResult<&'static Shim> {
    shim().map_err(PyRuntimeError::new_err)
}

/// Opens the shim at `path`, whose torch must be loaded. Idempotent; a second one is refused.
pub fn open(path: &Path) -> Result<(), String> {
    if SHIM.get().is_none() {
        // SAFETY: the library's constructors only fill in its own tables and those of the torch that is loaded.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| format!("{} cannot be opened: {}", path.display(), reason(&error)))?;
        let found = Shim::find(path, &library)?;
        std::mem::forget(library); // torch keeps what it registers
        let _ = SHIM.set(found); // another thread has opened the same, or is told below
    }
    let opened = &shim()?.path;
    if opened != path {
        return Err(format!(
            "{} is open already, so {} cannot be: a process has one torch",
            opened.display(),
            path.display()
        ));
    }
    Ok(())
}
