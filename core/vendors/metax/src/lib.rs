//! MetaX devices, over MACA's runtime library, which is found at run time.
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

use flagos_core::descriptions::Declared;
use flagos_core::error::Error;

use self::kernel::LAUNCHER;
use self::vendor::MetaxVendor;
use flagos_core::vendors::{BuiltIn, Settings};

inventory::submit! { ENTRY }
inventory::submit! { Declared(description::description) }

/// The MetaX vendor for [`super::built_in`]. Chosen before the host, and after `cuda`.
pub const ENTRY: BuiltIn = BuiltIn {
    description: description::description,
    rank: 95,
    survey,
    open: |settings, pending| {
        if driver::is_forked() {
            return Err(Error::forked("metax"));
        }
        survey(settings).map_err(|reason| Error::device("metax", reason))?;
        Ok(Arc::new(MetaxVendor::new(pending)?))
    },
    launcher: Some(|| &LAUNCHER),
    kernels: None,
    declarations: inferred::DECLARATIONS,
    product_name: survey::product_name,
};

fn survey(settings: &Settings) -> Result<usize, String> {
    survey::devices(|name| settings.variables.get(name).cloned())
}
