//! The description of the vendor `cuda`.

use std::sync::LazyLock;

use super::visible::VARIABLE;
use flagos_core::descriptions::{Description, NeededLibrary, Serving, Variable};

/// The words of CUDA's errors, in its driver's names and in its own texts, which its runtime, torch and Triton show behind
/// words of their own, after which every call of the process fails.
const DEVICE_LOST: [&str; 22] = [
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "an illegal instruction was encountered",
    "an illegal memory access was encountered",
    "device-side assert triggered",
    "hardware stack error",
    "invalid program counter",
    "misaligned address",
    "operation not supported on global/shared address space",
    "the launch timed out and was terminated",
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected during the execution",
    "unspecified launch failure",
];

/// The description of the vendor `cuda`.
pub(super) fn description() -> &'static Description {
    static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| {
        Description {
        name: "cuda".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        aliases: vec!["nvidia".into()],
        variables: vec![Variable {
            name: VARIABLE.into(),
            text: "The devices of this process, by number or UUID, in this order; every device when it is not set. \
                   An empty value hides every device."
                .into(),
        }],
        libraries: vec![
            NeededLibrary::new("libcuda.so.1", "NVIDIA's driver", true),
            NeededLibrary::new("libnvidia-ml.so.1", "counting NVIDIA devices", false),
            NeededLibrary::new(
                "libnccl.so.2",
                "collectives of NVIDIA devices (NCCL)",
                false,
            ),
        ],
        device_lost: DEVICE_LOST.map(str::to_owned).into(),
        collective_engine: Some("nccl".into()),
        triton_backend: Some("nvidia".into()),
        flaggems_vendor: Some("nvidia".into()),
        serving: Serving::Torch("cuda".into()),
        dlpack_device_type: 2, // kDLCUDA
    }
    });
    &DESCRIPTION
}
