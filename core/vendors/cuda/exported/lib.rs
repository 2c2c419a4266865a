//! The vendor `cuda` as a library of `flagos_vendor.h`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flagos_core::Result;
use flagos_core::runtime::Vendor;
use flagos_core::vendors::library::{
    FLAGOS_VENDOR_EXTERNAL_STREAMS, FLAGOS_VENDOR_LAUNCHES, FLAGOS_VENDOR_NATIVE_HANDLES,
};
use flagos_core::vendors::{Description, Settings};
use flagos_cuda::ENTRY;
use flagos_vendor_kit::export::Export;

struct Cuda;

fn settings() -> Settings {
    Settings::of_process((ENTRY.description)())
}

impl Export for Cuda {
    fn description() -> &'static Description {
        (ENTRY.description)()
    }
    fn capabilities() -> u64 {
        FLAGOS_VENDOR_NATIVE_HANDLES | FLAGOS_VENDOR_EXTERNAL_STREAMS | FLAGOS_VENDOR_LAUNCHES
    }
    fn probe() -> Result<usize, String> {
        (ENTRY.survey)(&settings())
    }
    fn open(pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>> {
        (ENTRY.open)(&settings(), pending)
    }
}

flagos_vendor_kit::export_vendor!(Cuda);
