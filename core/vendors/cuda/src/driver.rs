//! CUDA's driver: opened and initialised once per process, and never used in a forked child.

use std::ffi::c_int;
use std::sync::OnceLock;

use flagos_core::error::{Error, Result};

use super::api::{Api, OLDEST};
use flagos_vendor_kit::driver::Process;
use flagos_vendor_kit::{call, driver_library};

/// The driver library, opened but not initialised; or the reason why it cannot be opened. Decided once per
/// process.
pub(super) fn open() -> std::result::Result<&'static Api, &'static str> {
    static OPENED: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        let library = driver_library::open(&["libcuda.so.1", "libcuda.so"]).map_err(|missing| {
            format!(
                "{missing}; install NVIDIA's driver, and in a container let it in: \
                 NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            )
        })?;
        // SAFETY: a library of this name is CUDA's driver, and it is never closed.
        unsafe { Api::find(library) }.map_err(|missing| {
            let missing = missing.join(", ");
            format!("the NVIDIA driver is too old: it has no {missing}; install one for CUDA 11.0 or newer")
        })
    });
    opened.as_ref().map_err(String::as_str)
}

/// The reason why a driver of this CUDA version cannot be used.
pub(super) fn too_old(version: c_int) -> String {
    let text = |version: c_int| format!("{}.{}", version / 1000, version % 1000 / 10);
    format!(
        "the NVIDIA driver is too old: it speaks CUDA {}; install one for CUDA {} or newer",
        text(version),
        text(OLDEST)
    )
}

/// What this process has done with CUDA.
pub(super) static PROCESS: Process = Process::new(in_forked_child);

extern "C" fn in_forked_child() {
    PROCESS.note_fork();
}

/// The driver, initialised by the first call of the process.
pub(super) fn initialize() -> Result<&'static Api> {
    if PROCESS.is_forked() {
        return Err(Error::forked("cuInit"));
    }
    let api = open().map_err(|reason| Error::device("cuInit", reason))?;
    if PROCESS.is_initialized() {
        return Ok(api);
    }
    let mut version = 0;
    // SAFETY: a valid output; this function needs no initialisation.
    unsafe { call!(api, cuDriverGetVersion(&mut version)) }?;
    if version < OLDEST {
        return Err(Error::device("cuInit", too_old(version)));
    }
    // SAFETY: 0 is the only valid value of the flags.
    PROCESS.start("cuInit", || unsafe { call!(api, cuInit(0)) })?;
    Ok(api)
}
