//! Opening a vendor's library: a configured file, else one that the process has loaded already, else by name.

use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::{Error, ErrorKind, Result};

/// An open library, which stays loaded for the life of the process: threads that it started may outlive every
/// communicator.
pub struct Opened {
    library: &'static Library,
    /// The file or soname that the library was opened by.
    pub name: String,
}

impl Opened {
    /// Opens `file`, or without one the first of `sonames` that is loaded or can be found.
    pub fn open(file: Option<&Path>, sonames: &[&str]) -> Result<Self> {
        if let Some(file) = file {
            check_named(file)?;
            // SAFETY: the user named this file to be loaded.
            let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) };
            return Ok(Self {
                library: Box::leak(Box::new(library.map_err(|error| unusable(&cause(&error)))?)),
                name: file.display().to_string(),
            });
        }
        let mut reasons = vec![];
        for flags in [libc::RTLD_NOLOAD, 0] {
            for soname in sonames {
                // SAFETY: the names are those of vendors' libraries, whose initialisers may run.
                match unsafe { Library::open(Some(*soname), RTLD_NOW | RTLD_LOCAL | flags) } {
                    Ok(library) => {
                        return Ok(Self {
                            library: Box::leak(Box::new(library)),
                            name: (*soname).to_owned(),
                        });
                    }
                    Err(error) if flags == 0 => reasons.push(cause(&error)),
                    Err(_) => {} // not loaded yet
                }
            }
        }
        Err(unusable(&reasons.join("; ")))
    }

    /// The function called `name`.
    ///
    /// # Safety
    /// `T` is the type of that function.
    pub unsafe fn function<T: Copy>(&self, name: &str) -> Result<T> {
        // SAFETY: the caller's promise.
        unsafe { self.optional(name) }.ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!("{} has no {name}", self.name),
            )
        })
    }

    /// The function called `name`, if there is one.
    ///
    /// # Safety
    /// `T` is the type of that function.
    pub unsafe fn optional<T: Copy>(&self, name: &str) -> Option<T> {
        // SAFETY: the caller's promise; the library stays loaded.
        unsafe { self.library.get::<T>(name.as_bytes()) }
            .ok()
            .map(|symbol| *symbol)
    }
}

/// Declares `Functions`, the table of a library's functions, and its loading. A function's symbol is the library's
/// prefix and the name of the function's type in the module of bindings. The library may lack an `optional` function.
macro_rules! functions {
    ($module:ident: $(fn $name:ident = $symbol:ident;)* $(optional $maybe:ident = $maybe_symbol:ident;)*) => {
        /// The library's functions.
        struct Functions {
            $($name: $module::$symbol,)*
            $($maybe: Option<$module::$maybe_symbol>,)*
        }

        impl Functions {
            fn load(library: &Opened, prefix: &str) -> crate::Result<Self> {
                // SAFETY: the types are those of the library's header.
                unsafe {
                    Ok(Self {
                        $($name: library.function(&format!("{prefix}{}", stringify!($symbol)))?,)*
                        $($maybe: library.optional(&format!("{prefix}{}", stringify!($maybe_symbol))),)*
                    })
                }
            }
        }
    };
}
pub(super) use functions;

/// The dynamic linker's message, which libloading keeps as the source of its error.
fn cause(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// Refuses a configured file that must not be loaded: a pipe, whose opening waits for ever, and a file that other users
/// may write, who would decide about the code of this process.
fn check_named(file: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let refused = |reason: &str| {
        Err(unusable(&format!(
            "FLAGOS_COMM_LIBRARY: {}: {reason}",
            file.display()
        )))
    };
    // The loader searches for a name without a folder.
    let named_alone = file
        .parent()
        .is_none_or(|folder| folder.as_os_str().is_empty());
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => refused("it is not a regular file"),
        Ok(found) if found.mode() & 0o002 != 0 => refused("every user may write to it"),
        Err(error) if !named_alone => refused(&error.to_string()),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn unusable(reason: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("its library cannot be opened: {reason}; set FLAGOS_COMM_LIBRARY to its file"),
    )
}
