//! A library whose table has been checked.

use std::path::Path;

use libloading::os::unix::{Library as Dynamic, RTLD_LOCAL, RTLD_NOW};

use crate::error::{Error, Result};

use super::description::{Description, Serving};
use super::host::host;
use super::types::*;
use super::{status, table, text};

/// The name of the function that a library exports.
const ENTRY: &str = "flagos_vendor";

/// A vendor's library, of a version that this flagos takes. It stays open as long as the process.
#[derive(Debug)]
pub struct Library {
    table: FlagosVendor,
    description: Description,
}

// SAFETY: the table is only read, and its functions may be called from every thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens the library at `path`. Its names stay its own. Fails with `Config`, naming the path and what is wrong: no
    /// file, no library of this machine, no entry function, a version or a table that cannot be taken.
    pub fn load(path: &Path) -> Result<&'static Self> {
        let origin = path.display().to_string();
        let refuse =
            |message: String| Error::config("vendor library", message).with_context("at", &origin);
        // The system would search its own folders for a name without a folder.
        let found = path
            .canonicalize()
            .map_err(|error| refuse("there is no such file".into()).with_source(error))?;
        // SAFETY: constructors of the library run here; the user who named it as a vendor trusts it.
        let library = unsafe { Dynamic::open(Some(&found), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            refuse(format!(
                "it cannot be opened: {}",
                cause.unwrap_or_else(|| error.to_string())
            ))
            .with_hint(
                "it has to be a shared library for this machine, with all libraries it needs",
            )
        })?;
        // Never closed: drivers do not survive it.
        let library: &'static Dynamic = Box::leak(Box::new(library));
        // SAFETY: a function of this name has this type: it is how a library says that it is a vendor.
        let entry = unsafe { library.get::<FlagosVendorEntry>(ENTRY.as_bytes()) };
        let entry = entry.map_err(|_| {
            refuse(format!("it exports no function `{ENTRY}`"))
                .with_hint("compile it with core/include/flagos_vendor.h, and export that function")
        })?;
        // SAFETY: as above.
        unsafe { Self::adopt(&origin, *entry) }
    }

    /// Takes the table that `entry` returns, of code linked into the program or of a library; `origin` names it in
    /// errors. Fails with `Config`.
    ///
    /// # Safety
    /// `entry` keeps to `flagos_vendor.h`: what it returns has the size that it says, and points at what lives as long
    /// as the process.
    pub unsafe fn adopt(origin: &str, entry: FlagosVendorEntry) -> Result<&'static Self> {
        let refuse = |message: String| {
            Error::config("vendor library", message)
                .with_context("at", origin)
                .with_hint(format!(
                    "this flagos takes version {FLAGOS_VENDOR_MAJOR}.x of flagos_vendor.h"
                ))
        };
        let Some(entry) = entry else {
            return Err(refuse("the entry function is NULL".into()));
        };
        let mut reason = std::ptr::null();
        // SAFETY: the caller's promise; the host's struct is static.
        let given = unsafe { entry(host(), &mut reason) };
        if given.is_null() {
            // SAFETY: the reason is NULL or static.
            let reason = unsafe { text::read_lossy(reason) };
            let reason = reason.unwrap_or_else(|| "no reason was given".into());
            return Err(refuse(format!("it declines: {reason}")));
        }
        // SAFETY: the caller's promise.
        let table = unsafe { table::read(given) }.map_err(refuse)?;
        let newer = table.minor > FLAGOS_VENDOR_MINOR;
        // SAFETY: the caller's promise.
        let description = unsafe { Description::read(table.description, newer) }.map_err(refuse)?;
        let library = Self { table, description };
        if library.description.serving == Serving::Host && !library.can(FLAGOS_VENDOR_HOST_COMPUTES)
        {
            let message =
                "serving is FLAGOS_VENDOR_SERVED_BY_HOST without FLAGOS_VENDOR_HOST_COMPUTES";
            return Err(refuse(message.into()));
        }
        Ok(Box::leak(Box::new(library)))
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

    /// The number of devices that the vendor would show. Initialises nothing. Fails with the reason why the vendor cannot
    /// be used here.
    pub fn probe(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: a valid output.
        unsafe { self.call("probe", |table| table.probe.map(|probe| probe(&mut count))) }?;
        self.count("probe", count)
    }

    /// A number of devices that the library gave.
    pub(super) fn count(&self, function: &'static str, count: i32) -> Result<usize> {
        match usize::try_from(count) {
            Ok(count @ 1..) => Ok(count),
            _ => Err(self.broken(function, format!("{count} devices"))),
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
        // SAFETY: the text is NULL or valid until this thread's next call.
        let text = self
            .table
            .last_error
            .and_then(|last| unsafe { text::read_lossy(last()) });
        status::error(&self.description.name, function, code, text)
    }

    /// The error of a function that the library does not have.
    #[cold]
    fn lacks(&self, function: &'static str) -> Error {
        let message = format!("the vendor `{}` has no {function}", self.description.name);
        Error::unsupported(function, message)
    }

    /// The error of a function that succeeded with a result that cannot be.
    #[cold]
    pub(super) fn broken(&self, function: &'static str, result: impl std::fmt::Display) -> Error {
        Error::internal(function, format!("the vendor's library gave {result}"))
            .with_context("vendor", &self.description.name)
            .with_hint("this is a defect of the vendor's library: report it to the vendor")
    }
}
