//! The functions of the table that take an instance.

use std::ffi::{c_char, c_void};
use std::ptr::NonNull;

use flagos_core::error::{Error, Result, panic_text};
use flagos_core::runtime::DeviceProperties;
use flagos_core::runtime::sync::number_at;

use super::exported::Export;
use super::handle::{Instance, device};
use super::outcome::{answer, give, refused, status};
use flagos_core::vendors::library::*;

/// A number of devices as the interface has it.
fn count(devices: usize) -> Result<i32> {
    i32::try_from(devices).map_err(|_| Error::internal("vendor", format!("{devices} devices")))
}

/// `FlagosVendor::probe`.
pub(super) unsafe extern "C" fn probe<E: Export>(device_count: *mut i32) -> i32 {
    let probed = std::panic::catch_unwind(E::probe);
    match probed.unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic)))) {
        // SAFETY: a valid output.
        Ok(devices) => unsafe { give(E::description(), device_count, || count(devices)) },
        Err(reason) => refused(&reason),
    }
}

/// `FlagosVendor::open`.
pub(super) unsafe extern "C" fn open<E: Export>(
    options: *const FlagosVendorOptions,
    out: *mut *mut FlagosVendorInstance,
) -> i32 {
    let open = || {
        // SAFETY: valid options, of a host of this major version.
        let pending = unsafe { (*options).pending };
        let pending = if pending.is_null() {
            // The work of the vendor may outlive it.
            Box::leak(Box::default())
        } else {
            // SAFETY: an aligned number that lives as long as the process, and that is used as an atomic one alone.
            unsafe { number_at(pending) }
        };
        let instance = Instance {
            vendor: E::open(pending)?,
            description: E::description(),
            defaults: Default::default(),
        };
        Ok(Box::into_raw(Box::new(instance)).cast())
    };
    // SAFETY: a valid output.
    unsafe { give(E::description(), out, open) }
}

// The functions below get an instance of `open`, and valid outputs.

/// `FlagosVendor::close`.
pub(super) unsafe extern "C" fn close(instance: *mut FlagosVendorInstance) {
    // SAFETY: made by `open`, and not used any more.
    let instance = unsafe { Box::from_raw(instance.cast::<Instance>()) };
    answer((), || drop(instance));
}

/// `FlagosVendor::after_fork_in_child`.
pub(super) unsafe extern "C" fn after_fork_in_child(instance: *mut FlagosVendorInstance) {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    answer((), || instance.vendor.after_fork_in_child());
}

/// `FlagosVendor::in_stream_work`.
pub(super) unsafe extern "C" fn in_stream_work(instance: *mut FlagosVendorInstance) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    answer(0, || instance.vendor.in_stream_work().into())
}

/// `FlagosVendor::device_count`.
pub(super) unsafe extern "C" fn device_count(
    instance: *mut FlagosVendorInstance,
    out: *mut i32,
) -> i32 {
    // SAFETY: a live instance and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            count(instance.vendor.device_count())
        })
    }
}

/// `FlagosVendor::device_properties`.
pub(super) unsafe extern "C" fn device_properties(
    instance: *mut FlagosVendorInstance,
    index: i32,
    out: *mut FlagosVendorProperties,
) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || {
        let told = instance.vendor.properties(device(index))?;
        // SAFETY: a struct of a host whose version has all members of this one.
        write_properties(unsafe { &mut *out }, &told);
        Ok(())
    })
}

fn write_properties(out: &mut FlagosVendorProperties, told: &DeviceProperties) {
    let mut end = told.name.len().min(out.name.len() - 1);
    while !told.name.is_char_boundary(end) {
        end -= 1;
    }
    out.name.fill(0);
    for (to, byte) in out.name.iter_mut().zip(told.name[..end].bytes()) {
        *to = byte as c_char;
    }
    out.total_memory = told.total_memory;
    out.multi_processor_count = told.multi_processor_count;
    out.major = told.major;
    out.minor = told.minor;
}

/// `FlagosVendor::device_memory`.
pub(super) unsafe extern "C" fn device_memory(
    instance: *mut FlagosVendorInstance,
    index: i32,
    out: *mut FlagosVendorMemory,
) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || {
        let told = instance.vendor.memory(device(index))?;
        // SAFETY: a struct of a host whose version has all members of this one.
        let out = unsafe { &mut *out };
        (out.free, out.total) = (told.free, told.total);
        Ok(())
    })
}

/// `FlagosVendor::device_sync`.
pub(super) unsafe extern "C" fn device_sync(
    instance: *mut FlagosVendorInstance,
    index: i32,
) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || {
        instance.vendor.device_sync(device(index))
    })
}

/// `FlagosVendor::device_quiesce`.
pub(super) unsafe extern "C" fn device_quiesce(
    instance: *mut FlagosVendorInstance,
    index: i32,
) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || {
        instance.vendor.quiesce(device(index))
    })
}

/// `FlagosVendor::device_reaches`.
pub(super) unsafe extern "C" fn device_reaches(
    instance: *mut FlagosVendorInstance,
    index: i32,
    peer: i32,
    out: *mut i32,
) -> i32 {
    // SAFETY: a live instance and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let reaches = instance.vendor.reaches(device(index), device(peer))?;
            Ok(reaches.into())
        })
    }
}

/// `FlagosVendor::memory_alloc`.
pub(super) unsafe extern "C" fn memory_alloc(
    instance: *mut FlagosVendorInstance,
    index: i32,
    nbytes: usize,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: a live instance and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let address = instance.vendor.alloc(device(index), nbytes)?;
            Ok(address.as_ptr().cast())
        })
    }
}

/// `FlagosVendor::memory_free`.
pub(super) unsafe extern "C" fn memory_free(
    instance: *mut FlagosVendorInstance,
    index: i32,
    address: *mut c_void,
    nbytes: usize,
) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || {
        let address = given(address)?;
        // SAFETY: allocated by `memory_alloc` with this size, and not used any more.
        unsafe { instance.vendor.free(device(index), address, nbytes) };
        Ok(())
    })
}

/// `FlagosVendor::memory_padding`.
pub(super) unsafe extern "C" fn memory_padding(instance: *mut FlagosVendorInstance) -> usize {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    answer(0, || instance.vendor.padding())
}

/// `FlagosVendor::capability_check`.
pub(super) unsafe extern "C" fn capability_check(
    instance: *mut FlagosVendorInstance,
    capability: u64,
) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || match capability {
        FLAGOS_VENDOR_LAUNCHES => instance.vendor.launcher().map(drop),
        FLAGOS_VENDOR_CAPTURES => instance.vendor.captures(),
        FLAGOS_VENDOR_SHARES => instance.vendor.sharing().map(drop),
        _ => Ok(()),
    })
}

/// `FlagosVendor::pinned_alloc`.
pub(super) unsafe extern "C" fn pinned_alloc(
    instance: *mut FlagosVendorInstance,
    nbytes: usize,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: a live instance and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            Ok(instance.vendor.pinned_alloc(nbytes)?.as_ptr().cast())
        })
    }
}

/// `FlagosVendor::pinned_free`.
pub(super) unsafe extern "C" fn pinned_free(
    instance: *mut FlagosVendorInstance,
    address: *mut c_void,
    nbytes: usize,
) -> i32 {
    // SAFETY: a live instance.
    let instance = unsafe { Instance::of(instance) };
    status(instance.description, || {
        let address = given(address)?;
        // SAFETY: allocated by `pinned_alloc` with this size, and not used any more.
        unsafe { instance.vendor.pinned_free(address, nbytes) };
        Ok(())
    })
}

pub(super) fn given(address: *mut c_void) -> Result<NonNull<u8>> {
    NonNull::new(address.cast())
        .ok_or_else(|| Error::invalid_argument("address", "the address is NULL"))
}
