//! MACA's runtime: opened once per process, and never used in a child that was forked after it was initialised.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LAZY};

use flagos_core::error::{Error, Result};
use flagos_vendor_kit::driver::Process;
use flagos_vendor_kit::{call, driver_library};

use super::api::{Api, SONAME};

/// The library, not initialised; or the reason why it cannot be used. Decided once per process.
pub(super) fn open() -> std::result::Result<&'static Api, &'static str> {
    static OPENED: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        let library = driver_library::open(&[SONAME]).map_err(|missing| {
            format!("{missing}; install MACA, and have its folder lib (/opt/maca/lib) in LD_LIBRARY_PATH")
        })?;
        // SAFETY: a library of this name is MACA's runtime, and it is never closed.
        unsafe { Api::find(library) }.map_err(|missing| incomplete(&missing))
    });
    opened.as_ref().map_err(String::as_str)
}

fn incomplete(missing: &[&str]) -> String {
    let missing = missing.join(", ");
    format!("{SONAME} has no {missing}: install MACA 3.0 or newer")
}

/// The library, if it is in this process already: loaded by MetaX's torch, or preloaded.
fn loaded() -> Option<Library> {
    // SAFETY: only looks at what is loaded.
    unsafe { Library::open(Some(SONAME), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()
}

/// Whether the library is in this process already.
pub(super) fn is_loaded() -> bool {
    driver_library::is_loaded(SONAME)
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

/// What this process has done with the runtime.
pub(super) static PROCESS: Process = Process::new(in_forked_child);

extern "C" fn in_forked_child() {
    PROCESS.note_fork();
}

/// The runtime, which the first call initialises, and the number of devices that it shows.
pub(super) fn initialize() -> Result<(&'static Api, usize)> {
    const OPERATION: &str = "mcGetDeviceCount";
    if PROCESS.is_forked() {
        return Err(Error::forked(OPERATION));
    }
    let api = open().map_err(|reason| Error::device(OPERATION, reason))?;
    let count = PROCESS.start(OPERATION, || count(api))?;
    Ok((api, count))
}

/// The number of devices that the runtime shows, which initialises it.
pub(super) fn count(api: &Api) -> Result<usize> {
    let mut count = 0;
    // SAFETY: a valid output.
    unsafe { call!(api, mcGetDeviceCount(&mut count)) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_something_else_is_refused_by_what_it_lacks() {
        // SAFETY: the C library, which every process has.
        let library = unsafe { libloading::Library::new("libc.so.6") }.expect("the C library");
        // SAFETY: nothing is found, so nothing is called.
        let missing = unsafe { Api::find(&library) }
            .err()
            .expect("nothing is found");
        let reason = incomplete(&missing);
        let says = "libmcruntime.so has no mcGetDeviceCount, mcGetDevice, ";
        assert!(reason.starts_with(says), "{reason}");
    }
}
