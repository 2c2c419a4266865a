//! Access to the memory of another device.
//!
//! Without access a copy between two devices goes through host memory. The first copy between two devices
//! arranges access for the pair, and no earlier call does, because each pair costs memory and a limited resource.

use std::sync::atomic::Ordering;

use flagos_core::error::Result;

use super::api::SUCCESS;
use super::device::Device;
use super::error::{PEER_ALREADY, failed, mc};

/// Lets `device`, which is current, access memory of `other`. Where access is impossible copies still work, only slower.
pub(super) fn arrange(device: &Device, other: usize) {
    let bit = u32::try_from(other)
        .ok()
        .and_then(|other| 1_u64.checked_shl(other));
    let Some(bit) = bit.filter(|bit| device.peers.load(Ordering::Relaxed) & bit == 0) else {
        return;
    };
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

/// Enables access; false when the hardware has no way to it.
fn enable(device: &Device, other: usize) -> Result<bool> {
    let api = device.api;
    let other = i32::try_from(other).unwrap_or(i32::MAX);
    let mut possible = 0;
    // SAFETY: a valid output, and devices that hold memory.
    unsafe {
        mc!(
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
