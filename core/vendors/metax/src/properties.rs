//! The properties of a device.

use std::ffi::{CStr, c_int};

use flagos_core::error::Result;
use flagos_core::runtime::DeviceProperties;
use flagos_vendor_kit::driver::DriverDevice as _;
use flagos_vendor_kit::{call, call_newer};

use super::api::{Api, attribute};
use super::device::Device;

/// Describes a device, which is used for it: the runtime tells the memory of the current device alone.
pub(super) fn describe(device: &Device) -> Result<DeviceProperties> {
    let api = device.api;
    let entered = device.enter("properties")?;
    let (_, total) = memory(api).map_err(|error| device.located(error))?;
    drop(entered);
    let ask = |number| attribute(api, number, device.raw()).map_err(|error| device.located(error));
    Ok(DeviceProperties {
        name: name(api, device.raw()).map_err(|error| device.located(error))?,
        total_memory: total as u64,
        multi_processor_count: ask(attribute::MULTIPROCESSOR_COUNT)?,
        major: ask(attribute::CAPABILITY_MAJOR)?,
        minor: ask(attribute::CAPABILITY_MINOR)?,
    })
}

/// Free and total bytes of the current device.
pub(super) fn memory(api: &Api) -> Result<(usize, usize)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: valid outputs.
    unsafe { call!(api, mcMemGetInfo(&mut free, &mut total)) }?;
    Ok((free, total))
}

/// The product name of a device, which is used by no call of it.
pub(super) fn name(api: &Api, device: c_int) -> Result<String> {
    let mut name = [0; 256];
    // SAFETY: an output of at least this size.
    unsafe { call_newer!(api, mcDeviceGetName(name.as_mut_ptr(), 255, device)) }?;
    // SAFETY: the runtime wrote at most 255 bytes, so that the last byte is 0.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}

/// The value of an attribute, which MACA numbers by itself.
pub(super) fn attribute(api: &Api, number: c_int, device: c_int) -> Result<c_int> {
    let mut value = 0;
    // SAFETY: a valid output.
    unsafe { call_newer!(api, mcDeviceGetAttribute(&mut value, number, device)) }
        .map_err(|error| error.with_context("attribute", number))?;
    Ok(value)
}
