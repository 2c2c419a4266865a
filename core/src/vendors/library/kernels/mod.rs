//! Kernels behind the C interface of `include/flagos_kernels.h`: the second table of a library, which computes.

mod types;

use std::ffi::{CStr, c_char};
use std::mem::{offset_of, size_of};
use std::ops::RangeInclusive;

use crate::error::Result;

use super::host::Host;
use super::table::{name_all, reserved_are_null, versioned};
use super::types::{FLAGOS_VENDOR_OK, FLAGOS_VENDOR_UNSUPPORTED};
use super::{status, text};

pub use types::*;

/// The major versions that this host takes, from the oldest to the newest.
const MAJORS: RangeInclusive<u32> = FLAGOS_KERNELS_MAJOR..=FLAGOS_KERNELS_MAJOR;

/// The size of the table in version 1.0, before anything was appended.
const SIZE_1_0: usize = offset_of!(FlagosKernels, reserved) + size_of::<[*const (); 15]>();

/// The host's struct for `flagos_kernels`.
static HOST: Host = Host::new(MAJORS, FLAGOS_KERNELS_MINOR);

/// The kernels of a library, of a version that this flagos takes.
#[derive(Debug)]
pub struct Kernels {
    table: FlagosKernels,
    names: Vec<String>,
}

impl Kernels {
    /// The kernels whose table `entry` returns, or what is wrong with it.
    ///
    /// # Safety
    /// `entry` keeps to `flagos_kernels.h`.
    pub(super) unsafe fn adopt(entry: FlagosKernelsEntry) -> Result<Option<Self>, String> {
        let Some(entry) = entry else {
            return Ok(None);
        };
        let mut reason = std::ptr::null();
        // SAFETY: the caller's promise; the host's struct is static.
        let given = unsafe { entry(HOST.address(), &mut reason) };
        if given.is_null() {
            // SAFETY: the reason is NULL or static.
            let reason = unsafe { text::read_lossy(reason) };
            let reason = reason.unwrap_or_else(|| "no reason was given".into());
            return Err(format!("flagos_kernels declines: {reason}"));
        }
        // SAFETY: the caller's promise.
        unsafe { Self::read(given) }.map(Some)
    }

    /// # Safety
    /// `given` is a table as `flagos_kernels.h` tells.
    unsafe fn read(given: *const FlagosKernels) -> Result<Self, String> {
        const WHAT: &str = "the table of kernels";
        // SAFETY: the caller's promise.
        let mut table = unsafe { versioned(WHAT, given, &MAJORS, SIZE_1_0) }?;
        let newer = table.minor > FLAGOS_KERNELS_MINOR;
        if !newer {
            reserved_are_null(WHAT, &table.reserved)?;
            let unknown = table.flags & !FLAGOS_KERNELS_POST;
            if unknown != 0 {
                let (major, minor) = (table.major, table.minor);
                return Err(format!(
                    "flags of {WHAT} has the bits {unknown:#x}, which have no meaning in version {major}.{minor}"
                ));
            }
        }
        let slots = [
            ("last_error", table.last_error.is_some()),
            ("find", table.find.is_some()),
            ("run", table.run.is_some()),
        ];
        let absent = slots.into_iter().filter(|(_, there)| !there);
        let missing: Vec<_> = absent.map(|(name, _)| name).collect();
        if !missing.is_empty() {
            return Err(format!("{} missing in {WHAT}: NULL", name_all(&missing)));
        }
        // SAFETY: the caller's promise.
        let names = unsafe { text::list("names", table.names, operator) }?;
        // Others read the copy, which is no longer than this host's type.
        table.struct_size = table.struct_size.min(size_of::<FlagosKernels>());
        Ok(Self { table, names })
    }

    /// The table, as separately compiled adapters use it.
    #[must_use]
    pub fn table(&self) -> &FlagosKernels {
        &self.table
    }

    /// The version of the interface that the library was compiled with: major and minor.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        (self.table.major, self.table.minor)
    }

    /// The operators that the library says it has kernels for, in its order. Empty where it does not tell.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The kernel of an operator, such as `aten::add.Tensor`; none where the library has none. `vendor` is the library's
    /// name for errors.
    pub(super) fn find(&self, vendor: &str, name: &CStr) -> Result<Option<*const FlagosKernel>> {
        const FUNCTION: &str = "kernels.find";
        let mut kernel = std::ptr::null();
        let code = match self.table.find {
            // SAFETY: a text and a valid output.
            Some(find) => unsafe { find(name.as_ptr(), &mut kernel) },
            None => FLAGOS_VENDOR_UNSUPPORTED,
        };
        match code {
            FLAGOS_VENDOR_UNSUPPORTED => Ok(None),
            FLAGOS_VENDOR_OK if kernel.is_null() => Err(status::broken(vendor, FUNCTION, "NULL")
                .with_context("operator", name.to_string_lossy())),
            FLAGOS_VENDOR_OK => Ok(Some(kernel)),
            code => Err(status::error(vendor, FUNCTION, code, self.last_error())
                .with_context("operator", name.to_string_lossy())),
        }
    }

    /// The text of the failure that has just happened on this thread.
    pub(super) fn last_error(&self) -> Option<String> {
        let last = self.table.last_error?;
        // SAFETY: the text is NULL or valid until this thread's next call.
        unsafe { text::read_lossy(last()) }
    }
}

/// The name of an operator: `namespace::name` or `namespace::name.overload`.
unsafe fn operator(member: &str, given: *const c_char) -> Result<String, String> {
    // SAFETY: the caller's promise.
    let name = unsafe { text::required(member, given) }?;
    match name.split_once("::") {
        Some((namespace, rest)) if !namespace.is_empty() && !rest.is_empty() => Ok(name),
        _ => Err(format!(
            "{member} is `{name}`: an operator has a name such as aten::add.Tensor"
        )),
    }
}
