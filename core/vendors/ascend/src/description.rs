//! The description of the vendor `ascend`.

use std::sync::LazyLock;

use flagos_core::descriptions::{Description, NeededLibrary, Serving, Variable};

use super::api::SONAME;
use super::error;
use super::variables::EXECUTORS;
use super::visible::VARIABLE;

/// The description of the vendor `ascend`.
pub(super) fn description() -> &'static Description {
    static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| {
        Description {
        name: "ascend".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        aliases: vec!["huawei".into(), "npu".into()],
        variables: vec![Variable {
            name: VARIABLE.into(),
            text: "The devices of this process, by number in ascending order, each once; every device when it is not set.".into(),
        }, Variable {
            name: EXECUTORS.into(),
            text: "How many executors of operators are kept for calls of the same shapes; 4096 when it is not set, 0 keeps none.".into(),
        }],
        libraries: vec![
            NeededLibrary::new(SONAME, "the ACL runtime of CANN", true),
            NeededLibrary::new("libnnopbase.so", "descriptions of tensors for operators of CANN", false),
            NeededLibrary::new("libopapi.so", "operators of CANN", false),
            NeededLibrary::new("libhccl.so", "collectives of Ascend devices (HCCL)", false),
        ],
        device_lost: error::lost_names(),
        collective_engine: Some("hccl".into()),
        triton_backend: Some("ascend".into()),
        flaggems_vendor: Some("ascend".into()),
        serving: Serving::Library,
        dlpack_device_type: 12, // kDLExtDev: DLPack has no number for Ascend
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
            "aclrtSynchronizeStream: ACL_ERROR_RT_AICORE_EXCEPTION (507015): ..."
        ));
        assert!(!lost(
            "aclrtMallocAlign32: ACL_ERROR_RT_MEMORY_ALLOCATION (207001)"
        ));
        assert!(!lost("ACL_ERROR_RT_STREAM_SYNC_TIMEOUT (507046)"));
    }
}
