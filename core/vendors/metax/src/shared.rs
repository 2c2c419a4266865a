//! Memory of one process used in another one, by the functions `mcIpc*`. A key is the handle of an allocation, as hexadecimal
//! digits.

use std::ffi::{CStr, c_void};
use std::fmt::Write as _;
use std::ptr::null_mut;

use flagos_core::error::{Error, Result};
use flagos_vendor_kit::allocations::{Allocation, Allocations};
use flagos_vendor_kit::driver::{DriverDevice as _, DriverSharing, DriverStreams as _};
use flagos_vendor_kit::{call_newer, lacking};

use super::api::{IPC_LAZY_PEER_ACCESS, IpcHandle, SONAME};
use super::device::Device;

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

impl DriverSharing for Device {
    fn can_share(&self) -> Result<()> {
        let functions = lacking!(
            self.api,
            mcIpcGetMemHandle,
            mcIpcOpenMemHandle,
            mcIpcCloseMemHandle
        );
        functions.map_or(Ok(()), |names| {
            let message = format!("{SONAME} has no {names}");
            Err(Error::unsupported("sharing", message).with_hint("send a copy"))
        })
    }

    fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    fn export_key(&self, allocation: &Allocation) -> Result<String> {
        let mut handle = IpcHandle([0; IpcHandle::BYTES]);
        let base = allocation.base as *mut c_void;
        // SAFETY: a valid output, and the beginning of a live allocation.
        unsafe { call_newer!(self.api, mcIpcGetMemHandle(&mut handle, base)) }?;
        Ok(to_key(&handle))
    }

    fn import_key(&self, key: &CStr) -> Result<*mut c_void> {
        let handle = from_key(&key.to_string_lossy())?;
        let (api, mut address) = (self.api, null_mut());
        // SAFETY: a valid output, and a handle of memory that is still there, by the promise of whoever imports.
        unsafe {
            call_newer!(
                api,
                mcIpcOpenMemHandle(&mut address, handle, IPC_LAZY_PEER_ACCESS)
            )
        }
        .map_err(|error| {
            self.located(error).with_hint(
                "the process that sent the memory has to be another one, be alive, and keep it",
            )
        })?;
        Ok(address)
    }

    fn settle_imports(&self) -> Result<()> {
        let _entered = self.enter("close")?;
        self.wait_for_all().map_err(|error| self.located(error))
    }

    fn close_key(&self, _key: &CStr, base: *mut c_void) -> Result<()> {
        // SAFETY: memory that was imported, and that nobody uses.
        unsafe { call_newer!(self.api, mcIpcCloseMemHandle(base)) }
    }
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
