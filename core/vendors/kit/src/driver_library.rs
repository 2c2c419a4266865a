//! Opening a driver's library.

use std::ffi::OsStr;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};

/// Opens the first of these sonames that the dynamic linker finds. The library is never closed, which drivers
/// do not survive. The error is the linker's, for the first name.
pub fn open(sonames: &[&str]) -> Result<&'static libloading::Library, String> {
    let mut first = None;
    for soname in sonames {
        // SAFETY: the names are fixed ones of vendors' drivers, whose constructors touch no device.
        match unsafe { Library::open(Some(OsStr::new(soname)), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok(Box::leak(Box::new(library.into()))),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                first.get_or_insert(cause.unwrap_or_else(|| error.to_string()));
            }
        }
    }
    Err(first.unwrap_or_else(|| "no library was named".into()))
}

/// Those of the names that a library does not have.
pub fn missing(library: &libloading::Library, names: &[&'static str]) -> Vec<&'static str> {
    // SAFETY: the address is not used.
    let lacks = |name: &&&str| unsafe { library.get::<*const ()>(**name) }.is_err();
    names.iter().filter(lacks).copied().collect()
}

/// Whether a library is in this process already.
pub fn is_loaded(soname: &str) -> bool {
    // SAFETY: only looks at what is loaded.
    unsafe { Library::open(Some(soname), RTLD_LAZY | libc::RTLD_NOLOAD) }.is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_name_is_in_the_reason() {
        let error = super::open(&["libflagos_no_such.so.1", "libflagos_no_such.so"]);
        let error = error.expect_err("there is no such library");
        assert!(error.contains("libflagos_no_such.so.1"), "{error}");
    }
}
