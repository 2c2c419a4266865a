//! CUDA's driver: opened and initialised once per process, and never used in a forked child.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use flagos_core::error::{Error, Result};

use super::api::{Api, OLDEST};
use super::error::check;
use flagos_vendor_kit::driver_library;

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
        unsafe { Api::find(library) }.map_err(|symbol| {
            format!("the NVIDIA driver is too old: it has no {symbol}; install one for CUDA 11.0 or newer")
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

/// Whether this process has initialised CUDA, or is initialising it.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Whether this process has initialised CUDA with success.
static INITIALIZED: AtomicBool = AtomicBool::new(false);
/// Whether this is a forked child of a process that had initialised CUDA, which does not work in the child.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether CUDA was initialised before this process was forked off.
#[inline]
pub(super) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Whether this process has initialised CUDA, or is initialising it.
#[cfg(test)]
pub(super) fn is_started() -> bool {
    STARTED.load(Ordering::SeqCst)
}

/// Marks a forked child. Only touches atomics, so that it may run between fork and exec.
extern "C" fn in_forked_child() {
    if STARTED.load(Ordering::SeqCst) {
        FORKED.store(true, Ordering::SeqCst);
    }
}

/// The driver, initialised by the first call of the process.
pub(super) fn initialize() -> Result<&'static Api> {
    if is_forked() {
        return Err(Error::forked("cuInit"));
    }
    if INITIALIZED.load(Ordering::Acquire) {
        return open().map_err(|reason| Error::device("cuInit", reason));
    }
    let api = open().map_err(|reason| Error::device("cuInit", reason))?;
    let mut version = 0;
    // SAFETY: a valid output; this function needs no initialisation.
    check(api, "cuDriverGetVersion", unsafe {
        (api.cuDriverGetVersion)(&mut version)
    })?;
    if version < OLDEST {
        return Err(Error::device("cuInit", too_old(version)));
    }
    watch_forks()?;
    let before = STARTED.swap(true, Ordering::SeqCst);
    // SAFETY: 0 is the only valid value of the flags.
    let outcome = check(api, "cuInit", unsafe { (api.cuInit)(0) });
    match outcome {
        Ok(()) => INITIALIZED.store(true, Ordering::Release),
        Err(_) => STARTED.store(before, Ordering::SeqCst),
    }
    outcome.map(|()| api)
}

fn watch_forks() -> Result<()> {
    static REGISTERED: OnceLock<c_int> = OnceLock::new();
    // SAFETY: `in_forked_child` lives as long as the library and only touches atomics.
    let code = *REGISTERED
        .get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) });
    if code == 0 {
        return Ok(());
    }
    let source = std::io::Error::from_raw_os_error(code);
    Err(Error::device("cuInit", "forks cannot be watched").with_source(source))
}
