//! What a library says of the vendor that it exports.

use std::sync::Arc;

use flagos_core::descriptions::Description;
use flagos_core::error::Result;
use flagos_core::runtime::Vendor;
use flagos_core::runtime::sync::AtomicU64;

/// Something that a vendor takes for granted of its library on little evidence, and how it is tried out.
#[derive(Debug)]
pub struct Declaration {
    /// The function, number or structure, as the vendor's library calls it.
    pub name: &'static str,
    /// `B`: one program shows it. `C`: it is taken to be as that of another library.
    pub grade: char,
    /// What a try on the first device shows, or what is wrong. A wrong declaration may crash the process.
    pub run: fn() -> Result<String, String>,
}

/// A vendor that is exported.
pub trait Export: 'static {
    /// The description of the vendor.
    fn description() -> &'static Description;

    /// The bits `FLAGOS_VENDOR_HOST_COMPUTES`, `FLAGOS_VENDOR_NATIVE_HANDLES`, `FLAGOS_VENDOR_EXTERNAL_STREAMS`,
    /// `FLAGOS_VENDOR_LAUNCHES`, `FLAGOS_VENDOR_CAPTURES`, `FLAGOS_VENDOR_SHARES`, `FLAGOS_VENDOR_REACHES_PEERS` and
    /// `FLAGOS_VENDOR_SEES_CAPTURES` of what the vendor can do.
    fn capabilities() -> u64;

    /// The number of devices that the vendor would show, at least one. Fails with the reason why the vendor cannot be
    /// used here. Initialises nothing.
    fn probe() -> Result<usize, String>;

    /// Opens the vendor, which counts unfinished work in the number given: see [`Vendor::pending`].
    fn open(pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>>;

    /// What the vendor takes for granted of a library beneath it.
    fn declarations() -> &'static [Declaration] {
        &[]
    }
}
