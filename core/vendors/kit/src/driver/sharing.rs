//! Memory of one process used in another one.
//!
//! A key is that of a whole allocation. The process that imported closes before the one that exported frees: whoever sends
//! keys has to see to that.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::{Exported, Place, Sharing};

use super::{Devices, DriverDevice};
use crate::allocations::{Allocation, Allocations};
use crate::imports::Imports;

/// A driver's functions of memory between processes.
pub trait DriverSharing: DriverDevice {
    /// Fails with the names of the functions that the library does not have.
    fn can_share(&self) -> Result<()>;

    /// The allocations of all devices.
    fn allocations(&self) -> &Allocations;

    /// The key of an allocation of this device. The device is current.
    fn export_key(&self, allocation: &Allocation) -> Result<String>;

    /// The address of the memory of a key. The device is current. An error has its device.
    fn import_key(&self, key: &CStr) -> Result<*mut c_void>;

    /// Waits until queued work uses no imported memory, or refuses to.
    fn settle_imports(&self) -> Result<()>;

    /// Closes the memory of a key at the address that was imported, which nobody uses. The device is current.
    fn close_key(&self, key: &CStr, base: *mut c_void) -> Result<()>;
}

/// The capability of a vendor to share memory.
pub struct Shared<D> {
    devices: Devices<D>,
    imports: Imports,
}

impl<D: DriverSharing> Shared<D> {
    /// That of a vendor with these devices.
    pub fn new(devices: &Devices<D>) -> Self {
        Self {
            devices: devices.clone(),
            imports: Imports::default(),
        }
    }

    /// As [`flagos_core::runtime::Vendor::sharing`].
    pub fn capability(&self) -> Result<&dyn Sharing> {
        self.devices.device(0)?.can_share()?;
        Ok(self)
    }

    /// Ends a use of the memory at this address; the last one closes it.
    fn end_use(&self, device: usize, address: NonNull<u8>) -> Result<()> {
        let device = self.devices.device(device)?;
        device.can_share()?;
        let settled = || device.settle_imports();
        self.imports
            .close(address, settled, |key| close_now(&**device, key, address))
    }
}

fn close_now<D: DriverSharing>(device: &D, key: &CStr, address: NonNull<u8>) -> Result<()> {
    let _entered = device.enter("close")?;
    let base = device.allocations().forget(address);
    device
        .close_key(key, base)
        .map_err(|error| device.located(error))
}

impl<D: DriverSharing> Sharing for Shared<D> {
    fn export(&self, device: usize, address: NonNull<u8>) -> Result<Exported> {
        let device = self.devices.device(device)?;
        device.can_share()?;
        let own = |found: &Allocation| {
            found.place == Place::Device(device.index()) && !self.imports.contains(found.base)
        };
        let found = device.allocations().find(address.as_ptr()).filter(own);
        let found = found.ok_or_else(|| {
            let message = "the address is of no memory that this process allocated on the device";
            device.located(Error::unsupported("export", message).with_hint("send a copy"))
        })?;
        let _entered = device.enter("export")?;
        let key = device.export_key(&found);
        Ok(Exported {
            key: key.map_err(|error| device.located(error))?,
            offset: address.as_ptr() as usize - found.base,
            nbytes: found.nbytes,
        })
    }

    unsafe fn import(&self, device: usize, key: &str, nbytes: usize) -> Result<NonNull<u8>> {
        let device = self.devices.device(device)?;
        device.can_share()?;
        self.imports.import(key, |key| {
            let _entered = device.enter("import")?;
            let base = device.import_key(key)?;
            let address = NonNull::new(base.cast::<u8>()).ok_or_else(|| {
                Error::device("import", format!("{} gave the address 0", D::LIBRARY))
            })?;
            let place = Place::Device(device.index());
            device.allocations().note(address, nbytes, place, base);
            Ok(address)
        })
    }

    unsafe fn close(&self, device: usize, address: NonNull<u8>) {
        if let Err(error) = self.end_use(device, address) {
            tracing::error!(device, %error, "imported memory was not closed");
        }
    }

    /// Closes what is left. The addresses tell which memory is of which device.
    fn close_all(&self) {
        if D::process().is_forked() {
            return;
        }
        for (key, address) in self.imports.end() {
            let found = self.devices[0].allocations().find(address.as_ptr());
            let device = found.and_then(|found| self.devices.get(found.place.device()?));
            let closed = device.map(|device| {
                device.settle_imports()?;
                close_now(&**device, &key, address)
            });
            if let Some(Err(error)) = closed {
                tracing::debug!(%error, "imported memory was not closed");
            }
        }
    }
}
