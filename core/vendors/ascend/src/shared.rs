//! Memory of one process used in another one, by the functions `aclrtIpcMem*`, which came after CANN 8.1.
//!
//! A key is that of a whole allocation, and every process that has it may import. The process that imported closes before the
//! one that exported frees: whoever sends keys has to see to that. Events of other processes are not here.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Exported;
use flagos_vendor_kit::allocations::Allocation;
use flagos_vendor_kit::driver::DriverDevice as _;
use flagos_vendor_kit::imports::Imports;

use super::api::{Api, Code, EXPORT_TO_ALL, KEY_BYTES};
use super::captures::refused;
use super::device::Device;
use super::driver;
use super::memory::Place;

/// The functions, of a runtime that has all of them.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    export: unsafe extern "C" fn(*mut c_void, usize, *mut c_char, usize, u64) -> Code,
    import: unsafe extern "C" fn(*mut *mut c_void, *const c_char, u64) -> Code,
    close: unsafe extern "C" fn(*const c_char) -> Code,
}

impl Functions {
    /// The functions. Fails with the names of those that the runtime does not have.
    pub(super) fn of(api: &Api) -> Result<Self> {
        match (
            api.aclrtIpcMemGetExportKey,
            api.aclrtIpcMemImportByKey,
            api.aclrtIpcMemClose,
        ) {
            (Some(export), Some(import), Some(close)) => Ok(Self {
                export,
                import,
                close,
            }),
            _ => Err(missing(api)),
        }
    }
}

#[cold]
fn missing(api: &Api) -> Error {
    let known = [
        (
            "aclrtIpcMemGetExportKey",
            api.aclrtIpcMemGetExportKey.is_some(),
        ),
        (
            "aclrtIpcMemImportByKey",
            api.aclrtIpcMemImportByKey.is_some(),
        ),
        ("aclrtIpcMemClose", api.aclrtIpcMemClose.is_some()),
    ];
    let names = known.iter().filter(|(_, found)| !found);
    let names: Vec<_> = names.map(|(name, _)| *name).collect();
    let message = format!("{} has no {}", driver::SONAME, names.join(", "));
    Error::unsupported("sharing", message)
        .with_hint("send a copy, or install a version of CANN after 8.1")
}

/// The key of the allocation in which an address lies. `imports` are those of all devices.
pub(super) fn export(device: &Device, imports: &Imports, address: NonNull<u8>) -> Result<Exported> {
    let functions = Functions::of(device.api)?;
    let found = device.memory.find(address);
    let own = |found: &Allocation| {
        found.place == Place::Device(device.index) && !imports.contains(found.base)
    };
    let found = found.filter(own).ok_or_else(|| {
        let message = "the address is of no memory that this process allocated on the device";
        device.located(Error::unsupported("export", message).with_hint("send a copy"))
    })?;
    let _entered = device.enter("export")?;
    let mut key = [0; KEY_BYTES];
    // SAFETY: the beginning of a live allocation, its size, and an output of this size.
    let code = unsafe {
        (functions.export)(
            found.base as *mut _,
            found.nbytes,
            key.as_mut_ptr(),
            KEY_BYTES,
            EXPORT_TO_ALL,
        )
    };
    device
        .api
        .check("aclrtIpcMemGetExportKey", code)
        .map_err(|error| device.located(error))?;
    key[KEY_BYTES - 1] = 0;
    // SAFETY: the array ends with NUL.
    let key = unsafe { CStr::from_ptr(key.as_ptr()) };
    device.exported.lock().insert(found.base, key.to_owned());
    Ok(Exported {
        key: key.to_string_lossy().into_owned(),
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
    imports.import(key, |key| {
        let _entered = device.enter("import")?;
        let mut address = null_mut();
        // SAFETY: a valid output, and a text.
        let code = unsafe { (functions.import)(&mut address, key.as_ptr(), 0) };
        device
            .api
            .check("aclrtIpcMemImportByKey", code)
            .map_err(|error| {
                device
                    .located(error)
                    .with_hint("the process that sent the memory has to be alive, and keep it")
            })?;
        let found = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| Error::device("import", "the ACL runtime gave the address 0"))?;
        device
            .memory
            .note(found, nbytes, Place::Device(device.index), address);
        Ok(found)
    })
}

/// Closes the memory at this address, if that was its last use.
pub(super) fn close(device: &Device, imports: &Imports, address: NonNull<u8>) -> Result<()> {
    let functions = Functions::of(device.api)?;
    let ready = || {
        if device.is_capturing() {
            let message = "imported memory is not closed while a stream of the device is captured";
            return Err(device.located(refused("close", message)));
        }
        device.settle("close")
    };
    imports.close(address, ready, |key| {
        let _entered = device.enter("close")?;
        device.memory.forget(address);
        // SAFETY: a key that was imported, whose memory nobody uses.
        let code = unsafe { (functions.close)(key.as_ptr()) };
        device
            .api
            .check("aclrtIpcMemClose", code)
            .map_err(|error| device.located(error))
    })
}

/// Closes what is left, at the end of the process. The addresses tell which memory is of which device.
pub(super) fn close_all(devices: &[Arc<Device>], imports: &Imports) {
    for (key, address) in imports.end() {
        let Some(found) = devices[0].memory.find(address) else {
            continue;
        };
        let device = found.place.device().and_then(|index| devices.get(index));
        let closed = device.map(|device| {
            device.settle("close")?;
            let _entered = device.enter("close")?;
            device.memory.forget(address);
            // SAFETY: a key that was imported, whose memory nobody uses.
            let code = unsafe { (Functions::of(device.api)?.close)(key.as_ptr()) };
            device.api.check("aclrtIpcMemClose", code)
        });
        if let Some(Err(error)) = closed {
            tracing::debug!(%error, "imported memory was not closed");
        }
    }
}
