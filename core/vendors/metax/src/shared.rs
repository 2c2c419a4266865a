//! Memory of one process used in another one, by the functions `mcIpc*`.
//!
//! A key is the handle of a whole allocation, as hexadecimal digits. The process that imported closes before the one that
//! exported frees: whoever sends keys has to see to that.

use std::ffi::{CStr, c_uint, c_void};
use std::fmt::Write as _;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Exported;
use flagos_core::runtime::Place;
use flagos_vendor_kit::allocations::Allocation;
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::DriverDevice as _;
use flagos_vendor_kit::imports::Imports;

use super::api::{Api, Code, IPC_LAZY_PEER_ACCESS, IpcHandle, SONAME};
use super::device::Device;

/// The functions, of a runtime that has all of them.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    export: unsafe extern "C" fn(*mut IpcHandle, *mut c_void) -> Code,
    import: unsafe extern "C" fn(*mut *mut c_void, IpcHandle, c_uint) -> Code,
    close: unsafe extern "C" fn(*mut c_void) -> Code,
}

impl Functions {
    /// The functions. Fails with the names of those that the runtime does not have.
    pub(super) fn of(api: &Api) -> Result<Self> {
        match (
            api.mcIpcGetMemHandle,
            api.mcIpcOpenMemHandle,
            api.mcIpcCloseMemHandle,
        ) {
            (Some(export), Some(import), Some(close)) => Ok(Self {
                export,
                import,
                close,
            }),
            found => Err(missing([
                found.0.is_some(),
                found.1.is_some(),
                found.2.is_some(),
            ])),
        }
    }
}

#[cold]
fn missing(found: [bool; 3]) -> Error {
    let names = [
        "mcIpcGetMemHandle",
        "mcIpcOpenMemHandle",
        "mcIpcCloseMemHandle",
    ];
    let missing = names.into_iter().zip(found).filter(|(_, found)| !found);
    let missing: Vec<_> = missing.map(|(name, _)| name).collect();
    let message = format!("{SONAME} has no {}", missing.join(", "));
    Error::unsupported("sharing", message).with_hint("send a copy")
}

/// The handle as a key.
fn to_key(handle: &IpcHandle) -> String {
    handle.0.iter().fold(String::new(), |mut key, byte| {
        let _ = write!(key, "{byte:02x}");
        key
    })
}

/// The handle of a key.
fn from_key(key: &str) -> Result<IpcHandle> {
    let mut handle = IpcHandle([0; IpcHandle::BYTES]);
    let is_hex = key.bytes().all(|byte| byte.is_ascii_hexdigit());
    if key.len() != 2 * IpcHandle::BYTES || !is_hex {
        let message = format!(
            "the key has {} characters; a handle of {} bytes in hexadecimal digits is expected",
            key.len(),
            IpcHandle::BYTES
        );
        return Err(Error::invalid_argument("import", message)
            .with_hint("pass the key that the exporting process got"));
    }
    for (byte, digits) in handle.0.iter_mut().zip(key.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        *byte = u8::from_str_radix(digits, 16).unwrap_or_default();
    }
    Ok(handle)
}

/// The key of the allocation in which an address lies.
pub(super) fn export(device: &Device, imports: &Imports, address: NonNull<u8>) -> Result<Exported> {
    let functions = Functions::of(device.api)?;
    let own = |found: &Allocation| {
        found.place == Place::Device(device.index) && !imports.contains(found.base)
    };
    let found = device.allocations.find(address.as_ptr()).filter(own);
    let found = found.ok_or_else(|| {
        let message = "the address is of no memory that this process allocated on the device";
        device.located(Error::unsupported("export", message).with_hint("send a copy"))
    })?;
    let _entered = device.enter("export")?;
    let mut handle = IpcHandle([0; IpcHandle::BYTES]);
    // SAFETY: a valid output, and the beginning of a live allocation.
    let code = unsafe { (functions.export)(&mut handle, found.base as *mut c_void) };
    device
        .api
        .check("mcIpcGetMemHandle", code)
        .map_err(|error| device.located(error))?;
    Ok(Exported {
        key: to_key(&handle),
        offset: address.as_ptr() as usize - found.base,
        nbytes: found.nbytes,
    })
}

/// The memory of this key.
///
/// # Safety
/// As [`flagos_core::runtime::Sharing::import`].
pub(super) unsafe fn import(
    device: &Device,
    imports: &Imports,
    key: &str,
    nbytes: usize,
) -> Result<NonNull<u8>> {
    let functions = Functions::of(device.api)?;
    let handle = from_key(key)?;
    imports.import(key, |_| {
        let _entered = device.enter("import")?;
        let mut address = null_mut();
        // SAFETY: a valid output, and a handle of memory that is still there, by the caller's promise.
        let code = unsafe { (functions.import)(&mut address, handle, IPC_LAZY_PEER_ACCESS) };
        device
            .api
            .check("mcIpcOpenMemHandle", code)
            .map_err(|error| {
                device.located(error).with_hint(
                    "the process that sent the memory has to be another one, be alive, and keep it",
                )
            })?;
        let found = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| Error::device("import", "the runtime gave the address 0"))?;
        let place = Place::Device(device.index);
        device.allocations.note(found, nbytes, place, address);
        Ok(found)
    })
}

/// Closes the memory at this address, if that was its last use.
pub(super) fn close(device: &Device, imports: &Imports, address: NonNull<u8>) -> Result<()> {
    imports.close(
        address,
        || wait(device),
        |key| close_now(device, key, address),
    )
}

/// Closes what is left, at the end of the process.
pub(super) fn close_all(devices: &[Arc<Device>], imports: &Imports) {
    for (key, address) in imports.end() {
        let found = devices[0].allocations.find(address.as_ptr());
        let device = found.and_then(|found| devices.get(found.place.device()?));
        let closed = device.map(|device| {
            wait(device)?;
            close_now(device, &key, address)
        });
        if let Some(Err(error)) = closed {
            tracing::debug!(%error, "imported memory was not closed");
        }
    }
}

/// Waits for the device, on which queued work may use the memory.
fn wait(device: &Device) -> Result<()> {
    let _entered = device.enter("close")?;
    // SAFETY: the device is current.
    unsafe { call!(device.api, mcDeviceSynchronize()) }.map_err(|error| device.located(error))
}

fn close_now(device: &Device, _key: &CStr, address: NonNull<u8>) -> Result<()> {
    let functions = Functions::of(device.api)?;
    let _entered = device.enter("close")?;
    let base = device.allocations.forget(address);
    // SAFETY: memory that was imported, and that nobody uses.
    let code = unsafe { (functions.close)(base) };
    device
        .api
        .check("mcIpcCloseMemHandle", code)
        .map_err(|error| device.located(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_handle() {
        let mut handle = IpcHandle([0; IpcHandle::BYTES]);
        for (at, byte) in handle.0.iter_mut().enumerate() {
            *byte = (at * 37 % 256) as u8;
        }
        let key = to_key(&handle);
        assert_eq!(key.len(), 128);
        assert_eq!(from_key(&key).expect("a key").0, handle.0);
        for wrong in ["", "00", &"g".repeat(128), &"0".repeat(127)] {
            let error = from_key(wrong).map(drop).expect_err("no key").to_string();
            assert!(error.contains("64 bytes in hexadecimal"), "{error}");
        }
    }
}
