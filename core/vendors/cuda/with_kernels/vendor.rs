//! The vendor: `cuda`, with another name and way of serving.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

use flagos_core::Result;
use flagos_core::runtime::Vendor;
use flagos_core::vendors::library::{
    FLAGOS_VENDOR_EXTERNAL_STREAMS, FLAGOS_VENDOR_LAUNCHES, FLAGOS_VENDOR_NATIVE_HANDLES,
};
use flagos_core::vendors::{Description, Serving, Settings};
use flagos_cuda::ENTRY;
use flagos_vendor_kit::export::Export;

/// See the module.
pub struct Cudalib;

fn settings() -> Settings {
    Settings::of_process((ENTRY.description)())
}

impl Export for Cudalib {
    fn description() -> &'static Description {
        static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| Description {
            name: "cudalib".into(),
            aliases: Vec::new(),
            serving: Serving::Library,
            // Collectives and FlagGems take tensors of torch's own CUDA.
            collective_engine: None,
            flaggems_vendor: None,
            ..(ENTRY.description)().clone()
        });
        &DESCRIPTION
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
