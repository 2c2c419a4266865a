//! Access to the memory of another device: see [`flagos_vendor_kit::driver::Peers`].

use std::ffi::c_uint;

use cudarc::driver::sys::{CUdeviceptr, CUmemorytype, CUpointer_attribute, CUresult};

use flagos_core::error::Result;
use flagos_vendor_kit::call;

use super::api::{Api, Code, SUCCESS};
use super::device::Device;
use super::error::failed;

/// Lets `device`, whose context is current, access these addresses where they are another device's.
/// Where access is impossible copies still work, only slower.
pub(super) fn arrange(device: &Device, addresses: [CUdeviceptr; 2]) {
    for other in addresses
        .iter()
        .filter_map(|address| owner(device.api, *address))
    {
        device
            .peers
            .reach(device.index, other, || enable(device, other));
    }
}

/// The device that the memory at an address belongs to; `None` for host memory.
fn owner(api: &Api, address: CUdeviceptr) -> Option<usize> {
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
        .then(|| usize::try_from(ordinal).ok())
        .flatten()
}

/// Enables access of the current context to `other`'s memory; false when the hardware has no way to it.
fn enable(device: &Device, other: usize) -> Result<bool> {
    const ALREADY: Code = CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as Code;
    let api = device.api;
    let ordinal = i32::try_from(other).unwrap_or(i32::MAX);
    let (mut possible, mut raw, mut context) = (0, 0, std::ptr::null_mut());
    // SAFETY: valid outputs and valid devices. The other context stays retained, because access to it
    // ends with it.
    unsafe {
        call!(api, cuDeviceGet(&mut raw, ordinal))?;
        call!(api, cuDeviceCanAccessPeer(&mut possible, device.raw, raw))?;
        if possible == 0 {
            return Ok(false);
        }
        call!(api, cuDevicePrimaryCtxRetain(&mut context, raw))?;
        match (api.cuCtxEnablePeerAccess)(context, 0) {
            SUCCESS | ALREADY => Ok(true),
            code => Err(failed(api, "cuCtxEnablePeerAccess", code)),
        }
    }
}
