//! Entries about the process and its devices. Only this module uses the configuration, the plan and the
//! runtime together.

use std::ffi::c_char;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::policy::Config;
use crate::router;
use crate::runtime::{process, Runtime};
use crate::vendors::{self, Settings, VendorEntry, VendorReport};

use super::status::{catch, device_index, fail, give, status};
use super::types::{FlagosDeviceProperties, FLAGOS_OK};

/// Reads the configuration, opens the vendor and publishes the plan, once per process. After a
/// failure the next call tries again.
pub fn initialize() -> Result<&'static Runtime> {
    process::start(|| {
        let (entry, settings) = configured_vendor()?;
        let router = router::global();
        router.set_active_vendor(entry.name)?;
        router.resolve()?;
        let vendor = (entry.open)(&settings, Arc::clone(process::pending()))?;
        Runtime::new(vendor)
    })
}

fn configured_vendor() -> Result<(&'static VendorEntry, Settings)> {
    let config = router::global().config()?;
    let settings = settings(&config);
    let entry = vendors::select(config.vendor(), &settings)?;
    Ok((entry, settings))
}

/// The vendor that serves this process, or would serve it: the one that `FLAGOS_VENDOR` names, else the best
/// one present. Opens nothing. With a mistake in the configuration the best vendor is returned, because
/// [`initialize`] reports the mistake at the first use of a device.
pub fn chosen_vendor() -> Result<&'static str> {
    match process::get() {
        Some(runtime) => Ok(runtime.vendor().name()),
        None if process::is_forked() => Err(Error::forked("vendor")),
        None => Ok(match configured_vendor() {
            Ok((entry, _)) => entry.name,
            Err(_) => vendors::select(None, &Settings::default())?.name,
        }),
    }
}

fn settings(config: &Config) -> Settings {
    Settings {
        host: config.host.clone(),
        cuda_visible_devices: config.cuda_visible_devices.clone(),
    }
}

/// The reports on every vendor of this build, the best first. Initialises nothing.
pub fn vendor_reports() -> Result<Vec<VendorReport>> {
    if process::is_forked() {
        return Err(Error::forked("vendors"));
    }
    let config = router::global().config()?;
    Ok(vendors::report(config.vendor(), &settings(&config)))
}

/// `FlagosApi::init`.
pub(super) extern "C" fn init() -> i32 {
    if process::get().is_some() {
        return FLAGOS_OK;
    }
    status(|| initialize().map(drop))
}

/// `FlagosApi::device_count`.
pub(super) extern "C" fn device_count() -> i32 {
    static KNOWN: AtomicI32 = AtomicI32::new(-1);
    let known = KNOWN.load(Ordering::Relaxed);
    if known >= 0 {
        return known;
    }
    match catch(count_devices) {
        Ok(count) => {
            KNOWN.store(count, Ordering::Relaxed);
            count
        }
        Err(error) => {
            fail(&error);
            0
        }
    }
}

fn count_devices() -> Result<i32> {
    let count = match process::get() {
        Some(runtime) => runtime.vendor().device_count(),
        // In a forked child the configuration's lock may be held for ever.
        None if process::is_forked() => return Err(Error::forked("device_count")),
        None => {
            let (entry, settings) = configured_vendor()?;
            (entry.device_count)(&settings)
        }
    };
    Ok(i32::try_from(count).unwrap_or(i32::MAX))
}

/// `FlagosApi::device_properties`.
///
/// # Safety
/// `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn device_properties(
    device: i32,
    out: *mut FlagosDeviceProperties,
) -> i32 {
    status(|| {
        let vendor = process::require("device_properties")?.vendor();
        let properties = vendor.properties(device_index(device)?)?;
        let value = FlagosDeviceProperties {
            name: c_text(&properties.name),
            vendor: c_text(vendor.name()),
            total_memory: properties.total_memory,
            multi_processor_count: properties.multi_processor_count,
            major: properties.major,
            minor: properties.minor,
        };
        // SAFETY: the caller's promise.
        unsafe { give(out, value) }
    })
}

/// The text, cut to as many whole characters as fit before a NUL.
fn c_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(text[..end].bytes()) {
        *to = from as c_char;
    }
    array
}
