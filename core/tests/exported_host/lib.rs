//! The vendor `host` as a library of `flagos_vendor.h`. `FLAGOS_HOST_*` set it up as they set up the one of the core.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flagos_core::Result;
use flagos_core::env::{Env, HostSettings};
use flagos_core::runtime::Vendor;
use flagos_core::vendors::host::ENTRY;
use flagos_core::vendors::library::FLAGOS_VENDOR_HOST_COMPUTES;
use flagos_core::vendors::{Description, Settings};
use flagos_vendor_kit::export::Export;

struct Host;

fn settings() -> Result<Settings> {
    Ok(Settings {
        host: HostSettings::from_env(&Env::from_process())?,
        ..Settings::default()
    })
}

impl Export for Host {
    fn description() -> &'static Description {
        (ENTRY.description)()
    }
    fn capabilities() -> u64 {
        FLAGOS_VENDOR_HOST_COMPUTES
    }
    fn probe() -> Result<usize, String> {
        let settings = settings().map_err(|error| error.to_string())?;
        (ENTRY.survey)(&settings)
    }
    fn open(pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>> {
        (ENTRY.open)(&settings()?, pending)
    }
}

flagos_vendor_kit::export_vendor!(Host);
