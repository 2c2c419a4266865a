//! The vendor `ascend` as a library of `flagos_vendor.h`.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

use flagos_ascend::ENTRY;
use flagos_core::runtime::Vendor;
use flagos_core::vendors::library::{
    FLAGOS_VENDOR_CAPTURES, FLAGOS_VENDOR_EXTERNAL_STREAMS, FLAGOS_VENDOR_NATIVE_HANDLES,
    FLAGOS_VENDOR_REACHES_PEERS, FLAGOS_VENDOR_SHARES,
};
use flagos_core::vendors::{Description, Serving, Settings};
use flagos_core::{Error, Result};
use flagos_vendor_kit::export::Export;

struct Ascend;

const VISIBLE: &str = "ASCEND_RT_VISIBLE_DEVICES";

fn settings() -> Settings {
    Settings::of_variable(VISIBLE)
}

impl Export for Ascend {
    fn description() -> &'static Description {
        // The runtime alone: a library that serves by kernels has to have kernels.
        static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| Description {
            serving: Serving::Torch("npu".into()),
            ..(ENTRY.description)().clone()
        });
        &DESCRIPTION
    }
    fn capabilities() -> u64 {
        FLAGOS_VENDOR_NATIVE_HANDLES
            | FLAGOS_VENDOR_EXTERNAL_STREAMS
            | FLAGOS_VENDOR_CAPTURES
            | FLAGOS_VENDOR_SHARES
            | FLAGOS_VENDOR_REACHES_PEERS
    }
    fn probe() -> Result<usize> {
        (ENTRY.survey)(&settings()).map_err(|reason| Error::device("probe", reason))
    }
    fn open(pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>> {
        (ENTRY.open)(&settings(), pending)
    }
}

flagos_vendor_kit::export_vendor!(Ascend);
