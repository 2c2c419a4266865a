//! Memory of one process used in another one, by the functions `aclrtIpcMem*`, which came after CANN 8.1. Every process that
//! has a key may import. Events of other processes are not here.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use flagos_core::error::{Error, Result};
use flagos_vendor_kit::allocations::{Allocation, Allocations};
use flagos_vendor_kit::driver::{DriverDevice as _, DriverSharing};
use flagos_vendor_kit::{call_newer, lacking};

use super::api::{EXPORT_TO_ALL, KEY_BYTES, SONAME};
use super::captures::refused;
use super::device::Device;

impl DriverSharing for Device {
    fn can_share(&self) -> Result<()> {
        let functions = lacking!(
            self.api,
            aclrtIpcMemGetExportKey,
            aclrtIpcMemImportByKey,
            aclrtIpcMemClose
        );
        functions.map_or(Ok(()), |names| {
            let message = format!("{SONAME} has no {names}");
            Err(Error::unsupported("sharing", message)
                .with_hint("send a copy, or install a version of CANN after 8.1"))
        })
    }

    fn allocations(&self) -> &Allocations {
        self.memory.allocations()
    }

    fn export_key(&self, allocation: &Allocation) -> Result<String> {
        let (base, nbytes) = (allocation.base as *mut c_void, allocation.nbytes);
        let mut key = [0; KEY_BYTES];
        let text = key.as_mut_ptr();
        // SAFETY: the beginning of a live allocation, its size, and an output of this size.
        unsafe {
            call_newer!(
                self.api,
                aclrtIpcMemGetExportKey(base, nbytes, text, KEY_BYTES, EXPORT_TO_ALL)
            )
        }?;
        key[KEY_BYTES - 1] = 0;
        // SAFETY: the array ends with NUL.
        let key = unsafe { CStr::from_ptr(key.as_ptr()) };
        let mut exported = self.exported.lock();
        exported.insert(allocation.base, key.to_owned());
        Ok(key.to_string_lossy().into_owned())
    }

    fn import_key(&self, key: &CStr) -> Result<*mut c_void> {
        let mut address = null_mut();
        // SAFETY: a valid output, and a text.
        unsafe {
            call_newer!(
                self.api,
                aclrtIpcMemImportByKey(&mut address, key.as_ptr(), 0)
            )
        }
        .map_err(|error| {
            self.located(error)
                .with_hint("the process that sent the memory has to be alive, and keep it")
        })?;
        Ok(address)
    }

    fn settle_imports(&self) -> Result<()> {
        if self.is_capturing() {
            let message = "imported memory is not closed while a stream of the device is captured";
            return Err(self.located(refused("close", message)));
        }
        self.settle("close")
    }

    fn close_key(&self, key: &CStr, _base: *mut c_void) -> Result<()> {
        // SAFETY: a key that was imported, whose memory nobody uses.
        unsafe { call_newer!(self.api, aclrtIpcMemClose(key.as_ptr())) }
    }
}
