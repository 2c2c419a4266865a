//! Access to the memory of another device.
//!
//! Without access a copy between two devices goes through host memory. The first copy between two devices
//! arranges access for the pair, and no earlier call does, because each pair costs memory and a limited
//! resource of the driver.

use std::ffi::c_uint;
use std::sync::atomic::Ordering;

use cudarc::driver::sys::{CUdeviceptr, CUmemorytype, CUpointer_attribute, CUresult};

use flagos_core::error::Result;

use super::api::{Api, Code, SUCCESS};
use super::device::Device;
use super::error::{cuda, failed};

/// Lets `device`, whose context is current, access these addresses where they are another device's.
/// Where access is impossible copies still work, only slower.
pub(super) fn arrange(device: &Device, addresses: [CUdeviceptr; 2]) {
    for address in addresses {
        let Some(other) = owner(device.api, address) else {
            continue;
        };
        let bit = 1_u64.checked_shl(other).unwrap_or_default();
        if bit == 0 || device.peers.load(Ordering::Relaxed) & bit != 0 {
            continue;
        }
        match enable(device, other) {
            Ok(true) => tracing::debug!(device = device.index, other, "peer access"),
            Ok(false) => tracing::info!(
                device = device.index,
                other,
                "no peer access: copies go through host memory"
            ),
            Err(error) => tracing::warn!(
                device = device.index, other, %error,
                "no peer access: copies go through host memory"
            ),
        }
        device.peers.fetch_or(bit, Ordering::Relaxed);
    }
}

/// The device that the memory at an address belongs to; `None` for host memory.
fn owner(api: &Api, address: CUdeviceptr) -> Option<u32> {
    let (mut kind, mut ordinal): (c_uint, i32) = (0, -1);
    let mut attributes = [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let mut outputs = [
        std::ptr::from_mut(&mut kind).cast(),
        std::ptr::from_mut(&mut ordinal).cast(),
    ];
    // SAFETY: as many attributes as outputs, each of its attribute's type. An address that CUDA does
    // not know is answered with zeros.
    let code = unsafe {
        (api.cuPointerGetAttributes)(2, attributes.as_mut_ptr(), outputs.as_mut_ptr(), address)
    };
    let is_device = kind == CUmemorytype::CU_MEMORYTYPE_DEVICE as c_uint;
    (code == SUCCESS && is_device)
        .then(|| u32::try_from(ordinal).ok())
        .flatten()
}

/// Enables access of the current context to `other`'s memory; false when the hardware has no way to it.
fn enable(device: &Device, other: u32) -> Result<bool> {
    const ALREADY: Code = CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as Code;
    let api = device.api;
    let ordinal = i32::try_from(other).unwrap_or(i32::MAX);
    let (mut possible, mut raw, mut context) = (0, 0, std::ptr::null_mut());
    // SAFETY: valid outputs and valid devices. The other context stays retained, because access to it
    // ends with it.
    unsafe {
        cuda!(api, cuDeviceGet(&mut raw, ordinal))?;
        cuda!(api, cuDeviceCanAccessPeer(&mut possible, device.raw, raw))?;
        if possible == 0 {
            return Ok(false);
        }
        cuda!(api, cuDevicePrimaryCtxRetain(&mut context, raw))?;
        match (api.cuCtxEnablePeerAccess)(context, 0) {
            SUCCESS | ALREADY => Ok(true),
            code => Err(failed(api, "cuCtxEnablePeerAccess", code)),
        }
    }
}
