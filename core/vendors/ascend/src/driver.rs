//! The ACL runtime: opened and initialised once per process, and never used in a forked child.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::os::unix::{Library, RTLD_LAZY};

use flagos_core::error::{Error, Result};
use flagos_vendor_kit::driver_library;

use super::api::{Api, REQUIRED, SUCCESS};
use super::error::{REPEAT_INITIALIZE, check};

/// The name by which the dynamic linker finds the runtime.
pub(super) const SONAME: &str = "libascendcl.so";

/// The library, opened but not initialised; or the reason why it cannot be used. Decided once per process.
pub(super) fn open() -> std::result::Result<&'static Api, &'static str> {
    static OPENED: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        let library = driver_library::open(&[SONAME]).map_err(|missing| {
            format!("{missing}; install CANN 8.1 or newer, and `source` its set_env.sh before the program")
        })?;
        // SAFETY: a library of this name is the ACL runtime, and it is never closed.
        let found = unsafe { Api::find(library) };
        found.ok_or_else(|| incomplete(library))
    });
    opened.as_ref().map_err(String::as_str)
}

fn incomplete(library: &libloading::Library) -> String {
    let missing = REQUIRED.iter().filter(|name| {
        // SAFETY: the address is not used.
        unsafe { library.get::<*const ()>(**name) }.is_err()
    });
    too_old(version(library), &missing.copied().collect::<Vec<_>>())
}

/// The version of the ACL interface that a library tells.
fn version(library: &libloading::Library) -> Option<[i32; 3]> {
    type GetVersion = unsafe extern "C" fn(*mut i32, *mut i32, *mut i32) -> c_int;
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: the signature is that of the vendor's documentation, and the outputs are valid.
    let code = unsafe {
        let function = library.get::<GetVersion>("aclrtGetVersion\0").ok()?;
        function(&mut major, &mut minor, &mut patch)
    };
    (code == SUCCESS).then_some([major, minor, patch])
}

fn too_old(version: Option<[i32; 3]>, missing: &[&str]) -> String {
    let version = match version {
        Some([major, minor, patch]) => format!("its ACL is {major}.{minor}.{patch}"),
        None => "it tells no version".into(),
    };
    let missing = missing.join(", ");
    format!("{SONAME} has no {missing}, and {version}: install CANN 8.1 or newer")
}

/// Whether the library is in this process already, as under a simulator that was preloaded.
pub(super) fn is_loaded() -> bool {
    // SAFETY: only looks at what is loaded.
    unsafe { Library::open(Some(SONAME), RTLD_LAZY | libc::RTLD_NOLOAD) }.is_ok()
}

/// Whether this process has initialised the runtime, or is initialising it.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Whether this process has initialised the runtime with success.
static INITIALIZED: AtomicBool = AtomicBool::new(false);
/// Whether this is a forked child of a process that had initialised the runtime, which does not work in the child.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether the runtime was initialised before this process was forked off.
#[inline]
pub(super) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Whether this process has initialised the runtime, or is initialising it.
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

/// The runtime, initialised by the first call of the process. It is never finalised: other libraries use it too.
pub(super) fn initialize() -> Result<&'static Api> {
    if is_forked() {
        return Err(Error::forked("aclInit"));
    }
    let api = open().map_err(|reason| Error::device("aclInit", reason))?;
    if INITIALIZED.load(Ordering::Acquire) {
        return Ok(api);
    }
    watch_forks()?;
    let before = STARTED.swap(true, Ordering::SeqCst);
    // SAFETY: null is the configuration without a file.
    let code = unsafe { (api.aclInit)(std::ptr::null()) };
    let outcome = match code {
        // Another library was first.
        REPEAT_INITIALIZE => {
            drop(api.recent_error());
            Ok(())
        }
        code => check(api, "aclInit", code),
    };
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
    Err(Error::device("aclInit", "forks cannot be watched").with_source(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_version() {
        let missing = ["aclrtMallocAlign32", "aclrtProcessReport"];
        assert_eq!(
            too_old(Some([1, 11, 0]), &missing),
            "libascendcl.so has no aclrtMallocAlign32, aclrtProcessReport, and its ACL is 1.11.0: \
             install CANN 8.1 or newer"
        );
        assert!(too_old(None, &missing).contains("it tells no version"));
    }

    #[test]
    fn a_library_of_something_else_is_refused_by_name() {
        // SAFETY: the C library, which every process has.
        let library = unsafe { libloading::Library::new("libc.so.6") }.expect("the C library");
        // SAFETY: nothing is found, so nothing is called.
        assert!(unsafe { Api::find(&library) }.is_none());
        let reason = incomplete(&library);
        assert!(
            reason.contains("has no aclInit, aclrtGetDeviceCount, "),
            "{reason}"
        );
    }
}
