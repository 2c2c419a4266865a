//! MACA's runtime: opened once per process, and never used in a child that was forked after it was initialised.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::os::unix::{Library, RTLD_LAZY};

use flagos_core::error::{Error, Result};
use flagos_vendor_kit::driver_library;

use super::api::{Api, REQUIRED, SONAME};
use super::error::check;

/// The library, not initialised; or the reason why it cannot be used. Decided once per process.
pub(super) fn open() -> std::result::Result<&'static Api, &'static str> {
    static OPENED: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        let library = driver_library::open(&[SONAME]).map_err(|missing| {
            format!("{missing}; install MACA, and have its folder lib (/opt/maca/lib) in LD_LIBRARY_PATH")
        })?;
        // SAFETY: a library of this name is MACA's runtime, and it is never closed.
        unsafe { Api::find(library) }.ok_or_else(|| incomplete(library))
    });
    opened.as_ref().map_err(String::as_str)
}

fn incomplete(library: &libloading::Library) -> String {
    let missing = REQUIRED.iter().filter(|name| {
        // SAFETY: the address is not used.
        unsafe { library.get::<*const ()>(**name) }.is_err()
    });
    let missing = missing.copied().collect::<Vec<_>>().join(", ");
    format!("{SONAME} has no {missing}: install MACA 3.0 or newer")
}

/// The library, if it is in this process already: loaded by MetaX's torch, or preloaded.
fn loaded() -> Option<Library> {
    // SAFETY: only looks at what is loaded.
    unsafe { Library::open(Some(SONAME), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()
}

/// Whether the library is in this process already.
pub(super) fn is_loaded() -> bool {
    loaded().is_some()
}

/// The vendor to whose runtime the library in this process says that it forwards every call. MACA's own library says no
/// such thing: tests run this vendor's code on devices of another one by a library that does.
pub(super) fn forwards_to() -> Option<String> {
    type Forwards = unsafe extern "C" fn() -> *const c_char;
    let library = loaded()?;
    // SAFETY: a function of this name is declared so, and returns a static text.
    let text = unsafe { (library.get::<Forwards>(b"flagos_forwards_to\0").ok()?)() };
    // SAFETY: as above.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Whether this process has initialised the runtime, or is initialising it.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Whether this is a forked child of a process that had initialised the runtime, which does not work in the child.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether the runtime was initialised before this process was forked off.
#[inline]
pub(super) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Whether this process has initialised the runtime, or is initialising it.
pub(super) fn is_started() -> bool {
    STARTED.load(Ordering::SeqCst)
}

/// Marks a forked child. Only touches atomics, so that it may run between fork and exec.
extern "C" fn in_forked_child() {
    if STARTED.load(Ordering::SeqCst) {
        FORKED.store(true, Ordering::SeqCst);
    }
}

/// The runtime, which the first call initialises, and the number of devices that it shows.
pub(super) fn initialize() -> Result<(&'static Api, usize)> {
    if is_forked() {
        return Err(Error::forked("mcGetDeviceCount"));
    }
    let api = open().map_err(|reason| Error::device("mcGetDeviceCount", reason))?;
    watch_forks()?;
    let before = STARTED.swap(true, Ordering::SeqCst);
    let counted = count(api);
    if counted.is_err() {
        STARTED.store(before, Ordering::SeqCst);
    }
    counted.map(|count| (api, count))
}

/// The number of devices that the runtime shows, which initialises it.
pub(super) fn count(api: &Api) -> Result<usize> {
    let mut count = 0;
    // SAFETY: a valid output.
    let code = unsafe { (api.mcGetDeviceCount)(&mut count) };
    check(api, "mcGetDeviceCount", code)?;
    Ok(usize::try_from(count).unwrap_or(0))
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
    Err(Error::device("mcGetDeviceCount", "forks cannot be watched").with_source(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_something_else_is_refused_by_what_it_lacks() {
        // SAFETY: the C library, which every process has.
        let library = unsafe { libloading::Library::new("libc.so.6") }.expect("the C library");
        // SAFETY: nothing is found, so nothing is called.
        assert!(unsafe { Api::find(&library) }.is_none());
        let reason = incomplete(&library);
        let says = "libmcruntime.so has no mcGetDeviceCount, mcGetDevice, ";
        assert!(reason.starts_with(says), "{reason}");
    }
}
