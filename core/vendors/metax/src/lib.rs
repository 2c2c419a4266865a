//! MetaX devices, over MACA's runtime library, which is found at run time: a library of `flagos_vendor.h`.
//!
//! A file of MetaX's driver tells whether there are devices, and a child process counts them, because the runtime, once
//! initialised, is taken to be broken in every child forked afterwards. Opening the vendor initialises the runtime; the
//! first call for a device makes it current, and with it what all libraries of the process share.
//!
//! MetaX publishes no header. What is known by one program alone, or by likeness to CUDA, is in [`inferred`].
//!
//! Differences from the host vendor:
//! - After a failure of queued work (an illegal address, say) every later call reports that failure.
//! - Functions run by a stream must not call the runtime. Within them the core defers destroying and freeing, and
//!   refuses other calls with `Unsupported`. Functions of different streams may wait for each other.
//! - Copies to or from ordinary memory may wait until they have run.
//! - [`flagos_core::runtime::Vendor::pending`] stays 0.
//! - The core captures no graphs: torch does, whose own device the devices are.

mod api;
mod description;
mod device;
mod device_memory;
mod driver;
mod error;
mod event;
mod inferred;
mod kernel;
mod peer;
mod properties;
mod shared;
mod stream;
mod survey;
mod vendor;
mod visible;

use std::sync::Arc;

use flagos_core::descriptions::Description;
use flagos_core::error::{Error, Result};
use flagos_core::runtime::Vendor;
use flagos_core::runtime::sync::AtomicU64;
use flagos_core::vendors::library::{
    FLAGOS_VENDOR_EXTERNAL_STREAMS, FLAGOS_VENDOR_LAUNCHES, FLAGOS_VENDOR_NATIVE_HANDLES,
    FLAGOS_VENDOR_SEES_CAPTURES, FLAGOS_VENDOR_SHARES,
};
use flagos_vendor_kit::export::{Declaration, Export, check_variables};
use flagos_vendor_kit::export_vendor;

use self::vendor::MetaxVendor;

export_vendor!(Metax);

/// What the library exports.
struct Metax;

impl Export for Metax {
    fn description() -> &'static Description {
        description::description()
    }

    fn capabilities() -> u64 {
        FLAGOS_VENDOR_NATIVE_HANDLES
            | FLAGOS_VENDOR_EXTERNAL_STREAMS
            | FLAGOS_VENDOR_LAUNCHES
            | FLAGOS_VENDOR_SHARES
            | FLAGOS_VENDOR_SEES_CAPTURES
    }

    fn probe() -> Result<usize, String> {
        check_variables("metax", &Self::description().variables, std::env::vars_os())?;
        survey::devices(|name| std::env::var(name).ok())
    }

    fn open(pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>> {
        if driver::PROCESS.is_forked() {
            return Err(Error::forked("metax"));
        }
        // The core has probed the library in a child. Another library, as torch, may have initialised the runtime since,
        // so that no child can ask.
        survey::devices_here(|name| std::env::var(name).ok())
            .map_err(|reason| Error::device("metax", reason))?;
        Ok(Arc::new(MetaxVendor::new(pending)?))
    }

    fn declarations() -> &'static [Declaration] {
        inferred::DECLARATIONS
    }
}
