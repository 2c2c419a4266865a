//! The functions of the table by which processes share memory.

use std::ffi::{CStr, c_char, c_void};

use flagos_core::error::{Error, Result};
use flagos_core::vendors::library::*;

use super::handle::{Instance, device};
use super::instance::given;
use super::outcome::{give, status};

// These functions get a live instance, and valid outputs.

/// `FlagosVendor::memory_export`.
pub(super) unsafe extern "C" fn memory_export(
    instance: *mut FlagosVendorInstance,
    index: i32,
    address: *const c_void,
    out: *mut FlagosVendorExported,
) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || {
        let address = given(address.cast_mut())?;
        let found = instance.vendor.sharing()?.export(device(index), address)?;
        // SAFETY: a struct of a host whose version has all members of this one.
        let out = unsafe { &mut *out };
        write_key(&mut out.key, &found.key)?;
        (out.offset, out.nbytes) = (found.offset as u64, found.nbytes as u64);
        Ok(())
    })
}

fn write_key(out: &mut [c_char; 256], key: &str) -> Result<()> {
    if key.len() >= out.len() {
        let message = format!("a key of {} bytes does not fit", key.len());
        return Err(Error::internal("memory_export", message));
    }
    out.fill(0);
    for (to, byte) in out.iter_mut().zip(key.bytes()) {
        *to = byte as c_char;
    }
    Ok(())
}

/// `FlagosVendor::memory_import`.
pub(super) unsafe extern "C" fn memory_import(
    instance: *mut FlagosVendorInstance,
    index: i32,
    key: *const c_char,
    nbytes: usize,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: a live instance and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let key = CStr::from_ptr(key).to_str();
            let key =
                key.map_err(|_| Error::invalid_argument("memory_import", "the key is no text"))?;
            let sharing = instance.vendor.sharing()?;
            let address = sharing.import(device(index), key, nbytes)?;
            Ok(address.as_ptr().cast())
        })
    }
}

/// `FlagosVendor::memory_close`.
pub(super) unsafe extern "C" fn memory_close(
    instance: *mut FlagosVendorInstance,
    index: i32,
    address: *mut c_void,
) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || {
        let address = given(address)?;
        // SAFETY: given by `memory_import` on this device, and not used any more.
        unsafe { instance.vendor.sharing()?.close(device(index), address) };
        Ok(())
    })
}

/// `FlagosVendor::memory_close_all`.
pub(super) unsafe extern "C" fn memory_close_all(instance: *mut FlagosVendorInstance) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || {
        instance.vendor.sharing()?.close_all();
        Ok(())
    })
}
