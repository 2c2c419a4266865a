//! What the runtime tells of a device.

use flagos_core::error::Result;
use flagos_core::runtime::DeviceProperties;
use flagos_vendor_kit::call;

use super::api::{
    ATTRIBUTE_AI_CORES, ATTRIBUTE_MEMORY, Api, CAPABILITY_AI_CORES, MEMORY_DDR, MEMORY_HBM, SUCCESS,
};
use super::device::Device;

/// Describes a device. A runtime newer than CANN 8.1 is asked without starting the device.
pub(super) fn describe(device: &Device) -> Result<DeviceProperties> {
    let api = device.api;
    let raw = u32::try_from(device.index).unwrap_or(u32::MAX);
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: a valid output, and a device that was counted.
        let code = unsafe { (api.aclrtGetDeviceInfo?)(raw, attribute, &mut value) };
        positive(api, code, value)
    };
    let mut name = api.chip();
    let total_memory = match attribute(ATTRIBUTE_MEMORY) {
        Some(bytes) => bytes as u64,
        None => device.visit(|| {
            name = name.take().or_else(|| api.chip());
            Ok(memory(api)?.1 as u64)
        })?,
    };
    let cores = attribute(ATTRIBUTE_AI_CORES).or_else(|| {
        let mut value = 0;
        // SAFETY: as above.
        let code = unsafe { (api.aclGetDeviceCapability?)(raw, CAPABILITY_AI_CORES, &mut value) };
        positive(api, code, value)
    });
    Ok(DeviceProperties {
        name: name.unwrap_or_else(|| "Ascend".into()),
        total_memory,
        // A runtime that cannot be asked shows the device as one processor.
        multi_processor_count: cores
            .and_then(|cores| i32::try_from(cores).ok())
            .unwrap_or(1),
        // Ascend has no compute capability.
        major: 0,
        minor: 0,
    })
}

/// A number that the runtime knows.
fn positive(api: &Api, code: i32, value: i64) -> Option<i64> {
    if code != SUCCESS {
        // The question is one that this chip or version does not know.
        drop(api.recent_error());
    }
    (code == SUCCESS && value > 0).then_some(value)
}

/// Free and total bytes of the device whose context is current.
pub(super) fn memory(api: &Api) -> Result<(usize, usize)> {
    let (mut free, mut total) = (0, 0);
    for kind in [MEMORY_HBM, MEMORY_DDR] {
        // SAFETY: valid outputs. A kind that the chip does not have is answered with zeros.
        unsafe { call!(api, aclrtGetMemInfo(kind, &mut free, &mut total)) }?;
        if total > 0 {
            break;
        }
    }
    Ok((free, total))
}
