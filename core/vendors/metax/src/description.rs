//! The description of the vendor `metax`.

use std::sync::LazyLock;

use flagos_core::descriptions::{Description, NeededLibrary, Serving, Variable};

use super::api::SONAME;
use super::driver;
use super::error;
use super::visible::VARIABLE;

/// Triton's back end of MetaX, by the name of its target.
const TRITON: &str = "maca";
/// Triton's back end, and FlagGems' name, of the devices to which a library may forward.
const NVIDIA: &str = "nvidia";

/// The words by which MetaX's torch tells of a lost device: it is compiled from CUDA's sources.
const TORCH_WORDS: [&str; 5] = [
    "an illegal instruction was encountered",
    "an illegal memory access was encountered",
    "device-side assert triggered",
    "misaligned address",
    "unspecified launch failure",
];

/// The description of the vendor `metax`.
pub(super) fn description() -> &'static Description {
    static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| {
        let words = error::lost_names().chain(TORCH_WORDS);
        // Which compilers there are follows from the devices.
        let (triton, flaggems) = if driver::forwards_to().as_deref() == Some("cuda") {
            (NVIDIA, NVIDIA)
        } else {
            (TRITON, "metax")
        };
        Description {
        name: "metax".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        aliases: Vec::new(),
        variables: vec![Variable {
            name: VARIABLE.into(),
            text: "The devices of this process, by number, in this order; those of `CUDA_VISIBLE_DEVICES` when it is \
                   not set."
                .into(),
        }],
        libraries: vec![
            NeededLibrary::new(SONAME, "MACA's runtime", true),
            NeededLibrary::new("libmccl.so", "collectives of MetaX devices (MCCL)", false),
        ],
        device_lost: words.map(str::to_owned).collect(),
        collective_engine: Some("mccl".into()),
        triton_backend: Some(triton.into()),
        flaggems_vendor: Some(flaggems.into()),
        serving: Serving::Torch("cuda".into()),
        dlpack_device_type: 2, // kDLCUDA: torch's own devices are `cuda`
    }
    });
    &DESCRIPTION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_vendor_mean_what_they_say() {
        let lost = |text| description().means_lost(text);
        assert!(lost(
            "mcStreamSynchronize: mcErrorIllegalAddress (700): ..."
        ));
        assert!(lost("CUDA error: unspecified launch failure"));
        assert!(!lost(
            "mcMalloc: mcErrorMemoryAllocation (2): out of memory"
        ));
        assert!(!lost("mcStreamQuery: mcErrorNotReady (600)"));
    }
}
