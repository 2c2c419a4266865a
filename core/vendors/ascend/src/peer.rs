//! Copies between devices.
//!
//! The first copy between two devices arranges access for the pair. Without it a copy goes through host memory, and is
//! waited for.

use flagos_core::error::{Error, Result};
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::DriverDevice as _;

use super::api::kind::{DEVICE_TO_HOST, HOST_TO_DEVICE};
use super::captures;
use super::device::Device;

/// The most bytes that go through host memory at once.
const CHUNK: usize = 32 << 20;

/// Whether `device`, whose context is current, can access the memory of `other`.
pub(super) fn reaches(device: &Device, other: usize) -> bool {
    device
        .peers
        .reach(device.index, other, || enable(device, other))
}

/// Enables access; false when the hardware has no way to it.
fn enable(device: &Device, other: usize) -> Result<bool> {
    let other = i32::try_from(other).unwrap_or(i32::MAX);
    if !possible(device, other)? {
        return Ok(false);
    }
    // SAFETY: a device that holds memory.
    unsafe {
        call!(device.api, aclrtDeviceEnablePeerAccess(other, 0))?;
    }
    Ok(true)
}

/// Whether the hardware has a way from `device`, whose context is current, to the memory of `other`.
pub(super) fn possible(device: &Device, other: i32) -> Result<bool> {
    let mut possible = 0;
    // SAFETY: a valid output.
    unsafe {
        call!(
            device.api,
            aclrtDeviceCanAccessPeer(&mut possible, device.raw(), other)
        )?;
    }
    Ok(possible != 0)
}

/// Copies between two devices through host memory, and returns when that is done.
///
/// # Safety
/// The source lies on `from` and the destination on `to`, and nothing is queued that uses them.
pub(super) unsafe fn through_the_host(
    to: &Device,
    dst: *mut u8,
    from: &Device,
    src: *const u8,
    nbytes: usize,
) -> Result<()> {
    let mut buffer: Vec<u8> = Vec::new();
    buffer
        .try_reserve_exact(nbytes.min(CHUNK))
        .map_err(|_| Error::out_of_memory("copy", "no host memory for a copy between devices"))?;
    buffer.resize(nbytes.min(CHUNK), 0);
    for start in (0..nbytes).step_by(CHUNK) {
        let part = CHUNK.min(nbytes - start);
        let host = buffer.as_mut_ptr().cast();
        {
            let _entered = from.enter("copy")?;
            let _undisturbing = captures::undisturbing(from.api);
            let source = src.wrapping_add(start).cast();
            // SAFETY: the caller's promise, and a buffer of at least this size.
            unsafe {
                call!(
                    from.api,
                    aclrtMemcpy(host, part, source, part, DEVICE_TO_HOST)
                )
            }
            .map_err(|error| from.located(error))?;
        }
        let _entered = to.enter("copy")?;
        let _undisturbing = captures::undisturbing(to.api);
        let target = dst.wrapping_add(start).cast();
        // SAFETY: as above.
        unsafe {
            call!(
                to.api,
                aclrtMemcpy(target, part, host, part, HOST_TO_DEVICE)
            )
        }
        .map_err(|error| to.located(error))?;
    }
    Ok(())
}
