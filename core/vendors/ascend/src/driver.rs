//! The ACL runtime: opened and initialised once per process, and never used in a forked child.

use std::ffi::c_int;
use std::sync::OnceLock;

use flagos_core::error::{Error, Result};
use flagos_vendor_kit::driver::Process;
use flagos_vendor_kit::driver_library;

use super::api::{Api, SONAME, SUCCESS};
use super::error::REPEAT_INITIALIZE;

/// The library, opened but not initialised; or the reason why it cannot be used. Decided once per process.
pub(super) fn open() -> std::result::Result<&'static Api, &'static str> {
    static OPENED: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        let library = driver_library::open(&[SONAME]).map_err(|missing| {
            format!("{missing}; install CANN 8.1 or newer, and `source` its set_env.sh before the program")
        })?;
        // SAFETY: a library of this name is the ACL runtime, and it is never closed.
        let found = unsafe { Api::find(library) };
        found.map_err(|missing| too_old(version(library), &missing))
    });
    opened.as_ref().map_err(String::as_str)
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
    driver_library::is_loaded(SONAME)
}

/// What this process has done with the runtime.
pub(super) static PROCESS: Process = Process::new(in_forked_child);

extern "C" fn in_forked_child() {
    PROCESS.note_fork();
}

/// The runtime, initialised by the first call of the process. It is never finalised: other libraries use it too.
pub(super) fn initialize() -> Result<&'static Api> {
    if PROCESS.is_forked() {
        return Err(Error::forked("aclInit"));
    }
    let api = open().map_err(|reason| Error::device("aclInit", reason))?;
    if PROCESS.is_initialized() {
        return Ok(api);
    }
    PROCESS.start("aclInit", || {
        // SAFETY: null is the configuration without a file.
        match unsafe { (api.aclInit)(std::ptr::null()) } {
            // Another library was first.
            REPEAT_INITIALIZE => {
                drop(api.recent_error());
                Ok(())
            }
            code => api.check("aclInit", code),
        }
    })?;
    Ok(api)
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
        let missing = unsafe { Api::find(&library) }
            .err()
            .expect("nothing is found");
        let reason = too_old(version(&library), &missing);
        assert!(
            reason.contains("has no aclInit, aclrtGetDeviceCount, "),
            "{reason}"
        );
    }
}
