//! A library whose table has been checked.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Dynamic, RTLD_LOCAL, RTLD_NOW};

use crate::descriptions::{Description, Serving};
use crate::error::{Error, Result};

use super::call::call;
use super::host::HOST;
use super::kernels::{FlagosKernel, FlagosKernelsEntry, Kernels};
use super::step::Step;
use super::types::*;
use super::{description, elf, status, table, text};

/// The name of the function that a library exports.
const ENTRY: &str = "flagos_vendor";
/// The name of the function that a library with kernels exports too.
const KERNELS: &str = "flagos_kernels";
/// torch's numbers of devices are of the type `int8`.
const MOST_DEVICES: usize = i8::MAX as usize;
/// Room for what a declaration shows.
const LONGEST_SHOWN: usize = 1024;
const HINT: &str = "it has to be a shared library for this machine, with all libraries it needs";

fn refusal(path: &Path, message: String) -> Error {
    Error::config("vendor library", message).with_context("at", path.display())
}

/// A vendor's library, of a version that this flagos takes. It stays open as long as the process.
#[derive(Debug)]
pub struct Library {
    table: FlagosVendor,
    description: Description,
    kernels: Option<Kernels>,
    declarations: Vec<(String, char)>,
}

// SAFETY: the tables are only read, and its functions may be called from every thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// The canonical path of the library at `path`. Loads nothing. Fails with `Config`: no file, or no library of this
    /// machine.
    pub fn examine(path: &Path) -> Result<PathBuf> {
        let refuse = |message: String| refusal(path, message);
        let found = path
            .canonicalize()
            .map_err(|error| refuse("there is no such file".into()).with_source(error))?;
        let judged = elf::check(&found)
            .map_err(|error| refuse(format!("it cannot be read: {error}")).with_source(error))?;
        judged.map_err(|wrong| refuse(wrong).with_hint(HINT))?;
        Ok(found)
    }

    /// Opens the library at `path`. Its names stay its own. Fails with `Config`, naming the path and what is wrong: no
    /// file, no library of this machine, no entry function, a version or a table that cannot be taken.
    pub fn load(path: &Path) -> Result<&'static Self> {
        Self::load_by_steps(path, &mut |_, _| ())
    }

    /// [`Self::load`], which calls `passed` after every step, with what the step has shown.
    pub fn load_by_steps(
        path: &Path,
        passed: &mut dyn FnMut(Step, String),
    ) -> Result<&'static Self> {
        let refuse = |message: String| refusal(path, message);
        // The system would search its own folders for a name without a folder.
        let found = Self::examine(path)?;
        passed(Step::File, found.display().to_string());
        // SAFETY: constructors of the library run here; the user who named it as a vendor trusts it.
        let library = unsafe { Dynamic::open(Some(&found), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            refuse(format!(
                "it cannot be opened: {}",
                cause.unwrap_or_else(|| error.to_string())
            ))
            .with_hint(HINT)
        })?;
        passed(Step::Load, "with all the libraries that it needs".into());
        // Never closed: drivers do not survive it.
        let library: &'static Dynamic = Box::leak(Box::new(library));
        // SAFETY: a function of this name has this type: it is how a library says that it is a vendor.
        let entry = unsafe { library.get::<FlagosVendorEntry>(ENTRY.as_bytes()) };
        let entry = entry.map_err(|_| {
            refuse(format!("it exports no function `{ENTRY}`"))
                .with_hint("compile it with core/include/flagos_vendor.h, and export that function")
        })?;
        // SAFETY: as above.
        let kernels = unsafe { library.get::<FlagosKernelsEntry>(KERNELS.as_bytes()) };
        let kernels = kernels.map_or(None, |kernels| *kernels);
        let symbols = match kernels {
            Some(_) => format!("{ENTRY}, {KERNELS}"),
            None => format!("{ENTRY}, no {KERNELS}"),
        };
        passed(Step::Symbols, symbols);
        // SAFETY: as above.
        unsafe { Self::adopt_by_steps(&path.display().to_string(), *entry, kernels, passed) }
    }

    /// Takes the tables that `entry` and, unless the library has no kernels, `kernels` return, of code linked into the
    /// program or of a library; `origin` names it in errors. Fails with `Config`.
    ///
    /// # Safety
    /// `entry` keeps to `flagos_vendor.h` and `kernels` to `flagos_kernels.h`: what they return has the size that it
    /// says, and points at what lives as long as the process.
    pub unsafe fn adopt(
        origin: &str,
        entry: FlagosVendorEntry,
        kernels: FlagosKernelsEntry,
    ) -> Result<&'static Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::adopt_by_steps(origin, entry, kernels, &mut |_, _| ()) }
    }

    /// # Safety
    /// As [`Self::adopt`].
    unsafe fn adopt_by_steps(
        origin: &str,
        entry: FlagosVendorEntry,
        kernels: FlagosKernelsEntry,
        passed: &mut dyn FnMut(Step, String),
    ) -> Result<&'static Self> {
        // SAFETY: the caller's promise.
        let library = unsafe { Self::read(entry, kernels, passed) }.map_err(|message| {
            Error::config("vendor library", message)
                .with_context("at", origin)
                .with_hint(format!(
                    "this flagos takes version {FLAGOS_VENDOR_MAJOR}.x of flagos_vendor.h, and {}.x of flagos_kernels.h",
                    super::kernels::FLAGOS_KERNELS_MAJOR
                ))
        })?;
        Ok(Box::leak(Box::new(library)))
    }

    /// The tables that two entry functions return, or what is wrong with them.
    ///
    /// # Safety
    /// As [`Self::adopt`].
    pub unsafe fn read(
        entry: FlagosVendorEntry,
        kernels: FlagosKernelsEntry,
        passed: &mut dyn FnMut(Step, String),
    ) -> Result<Self, String> {
        let entry = entry.ok_or("the entry function is NULL")?;
        let mut reason = std::ptr::null();
        // SAFETY: the caller's promise; the host's struct is static.
        let given = unsafe { entry(HOST.address(), &mut reason) };
        if given.is_null() {
            // SAFETY: the reason is NULL or static.
            let reason = unsafe { text::read_lossy(reason) };
            let reason = reason.unwrap_or_else(|| "no reason was given".into());
            return Err(format!("it declines: {reason}"));
        }
        // SAFETY: the caller's promise.
        let (major, minor) = unsafe { table::version(given) }?;
        let newest = format!("{FLAGOS_VENDOR_MAJOR}.{FLAGOS_VENDOR_MINOR}");
        passed(
            Step::Version,
            format!("{major}.{minor}, and flagos has {newest}"),
        );
        // SAFETY: the caller's promise.
        let table = unsafe { table::read(given) }?;
        passed(Step::Table, table::summary(&table));
        let newer = table.minor > FLAGOS_VENDOR_MINOR;
        // SAFETY: the caller's promise.
        let description = unsafe { description::read(table.description, newer) }?;
        let can = |bit| table.capabilities & bit != 0;
        if description.serving == Serving::Host && !can(FLAGOS_VENDOR_HOST_COMPUTES) {
            return Err(
                "serving is FLAGOS_VENDOR_SERVED_BY_HOST without FLAGOS_VENDOR_HOST_COMPUTES"
                    .into(),
            );
        }
        // SAFETY: the caller's promise.
        let declarations = unsafe { description::declarations(&table) }?;
        passed(Step::Description, summary(&description));
        // SAFETY: the caller's promise.
        let kernels = unsafe { Kernels::adopt(kernels) }?;
        if description.serving == Serving::Library && kernels.is_none() {
            return Err(format!(
                "serving is FLAGOS_VENDOR_SERVED_BY_LIBRARY, and there is no function `{KERNELS}`"
            ));
        }
        let library = Self {
            table,
            description,
            kernels,
            declarations,
        };
        let has = if library.kernels.is_some() {
            "some"
        } else {
            "none"
        };
        passed(Step::Kernels, has.into());
        Ok(library)
    }

    /// The description of the vendor.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The version of the interface that the library was compiled with: major and minor.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        (self.table.major, self.table.minor)
    }

    /// Whether the library has this capability, one of the bits of [`FlagosVendor::capabilities`].
    #[must_use]
    pub fn can(&self, bit: u64) -> bool {
        self.table.capabilities & bit != 0
    }

    /// The kernels of the library, if it has any.
    #[must_use]
    pub fn kernels(&self) -> Option<&Kernels> {
        self.kernels.as_ref()
    }

    /// The library's kernel of an operator, such as `aten::add.Tensor`, if it has one. Initialises nothing.
    pub fn kernel(&self, operator: &CStr) -> Result<Option<*const FlagosKernel>> {
        match &self.kernels {
            Some(kernels) => kernels.find(&self.description.name, operator),
            None => Ok(None),
        }
    }

    /// What the library takes for granted of a library beneath it: each name, and the letter by which it is known.
    #[must_use]
    pub fn declarations(&self) -> &[(String, char)] {
        &self.declarations
    }

    /// Tries one of [`Self::declarations`] out on the first device: what it shows, or what is wrong. A wrong declaration
    /// may end the process.
    pub fn try_declaration(&self, index: usize) -> Result<String, String> {
        let mut shown = [0; LONGEST_SHOWN];
        let room = shown.len() - 1;
        let code = match self.table.declaration_try {
            // SAFETY: a declaration of the library, and a valid output with so much room.
            Some(run) if index < self.declarations.len() => unsafe {
                run(index, shown.as_mut_ptr(), room)
            },
            _ => return Err(format!("the library has no declaration {index}")),
        };
        let text = match code {
            // SAFETY: the last byte is a NUL that nobody writes.
            FLAGOS_VENDOR_OK => unsafe { text::read_lossy(shown.as_ptr()) },
            _ => self.last_error(),
        };
        let text = text.unwrap_or_default();
        if code == FLAGOS_VENDOR_OK {
            Ok(text)
        } else {
            Err(text)
        }
    }

    /// The number of devices that the vendor would show. Initialises nothing. Fails with the reason why the vendor cannot
    /// be used here.
    pub fn probe(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: a valid output.
        unsafe { call!(self, probe(&mut count)) }?;
        self.count("probe", count)
    }

    /// A number of devices that the library gave.
    pub(super) fn count(&self, function: &'static str, count: i32) -> Result<usize> {
        match usize::try_from(count) {
            Ok(count @ 1..=MOST_DEVICES) => Ok(count),
            _ => Err(self.broken(
                function,
                format!("{count} devices, and not 1 to {MOST_DEVICES}"),
            )),
        }
    }

    /// Calls a function of the table by `make`, which returns its status.
    ///
    /// # Safety
    /// Every promise that the function needs.
    #[inline]
    pub(super) unsafe fn call(
        &self,
        function: &'static str,
        make: impl FnOnce(&FlagosVendor) -> Option<i32>,
    ) -> Result<()> {
        match make(&self.table) {
            Some(FLAGOS_VENDOR_OK) => Ok(()),
            Some(code) => Err(self.failed(function, code)),
            None => Err(self.lacks(function)),
        }
    }

    /// The table, for functions that return no status.
    pub(super) fn table(&self) -> &FlagosVendor {
        &self.table
    }

    /// The error of a function that has just failed on this thread.
    #[cold]
    fn failed(&self, function: &'static str, code: i32) -> Error {
        status::error(&self.description.name, function, code, self.last_error())
    }

    /// The text of this thread's last failure.
    fn last_error(&self) -> Option<String> {
        let last = self.table.last_error?;
        // SAFETY: the text is NULL or valid until this thread's next call.
        unsafe { text::read_lossy(last()) }
    }

    /// The error of a function that the library does not have.
    #[cold]
    pub(super) fn lacks(&self, function: &'static str) -> Error {
        let message = format!("the vendor `{}` has no {function}", self.description.name);
        Error::unsupported(function, message)
    }

    /// The error of a function that succeeded with a result that cannot be.
    #[cold]
    pub(super) fn broken(&self, function: &'static str, result: impl std::fmt::Display) -> Error {
        status::broken(&self.description.name, function, result)
    }
}

/// A description in a line.
fn summary(description: &Description) -> String {
    let Description {
        name,
        version,
        aliases,
        serving,
        ..
    } = description;
    let also = match &aliases[..] {
        [] => String::new(),
        _ => format!(", also called {}", aliases.join(", ")),
    };
    format!("{name} {version}{also}, served by {}", serving.word())
}
