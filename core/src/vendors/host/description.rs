//! The description of the host vendor.

use std::sync::LazyLock;

use crate::descriptions::{Description, Serving};

/// The description of the host vendor.
pub(super) fn description() -> &'static Description {
    static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| Description {
        name: "host".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        aliases: Vec::new(),
        variables: Vec::new(),
        libraries: Vec::new(),
        device_lost: Vec::new(),
        collective_engine: Some("shm".into()),
        triton_backend: None,
        flaggems_vendor: None,
        serving: Serving::Host,
        dlpack_device_type: 1, // kDLCPU
    });
    &DESCRIPTION
}
