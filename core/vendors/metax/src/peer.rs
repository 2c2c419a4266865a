//! Access to the memory of another device: see [`flagos_vendor_kit::driver::Peers`].

use flagos_core::error::Result;
use flagos_vendor_kit::call;

use super::api::SUCCESS;
use super::device::Device;
use super::error::{PEER_ALREADY, failed};

/// Lets `device`, which is current, access memory of `other`. Where access is impossible copies still work, only slower.
pub(super) fn arrange(device: &Device, other: usize) {
    device
        .peers
        .reach(device.index, other, || enable(device, other));
}

/// Enables access; false when the hardware has no way to it.
fn enable(device: &Device, other: usize) -> Result<bool> {
    let api = device.api;
    let other = i32::try_from(other).unwrap_or(i32::MAX);
    let mut possible = 0;
    // SAFETY: a valid output, and devices that hold memory.
    unsafe {
        call!(
            api,
            mcDeviceCanAccessPeer(&mut possible, device.raw(), other)
        )?;
        if possible == 0 {
            return Ok(false);
        }
        match (api.mcDeviceEnablePeerAccess)(other, 0) {
            SUCCESS => Ok(true),
            PEER_ALREADY => {
                api.forget_failure();
                Ok(true)
            }
            code => Err(failed(api, "mcDeviceEnablePeerAccess", code)),
        }
    }
}
