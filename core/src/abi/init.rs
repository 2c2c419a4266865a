//! Entries about the process and its devices. Only this module uses the configuration, the plan and the
//! runtime together.

use std::ffi::c_char;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::policy::Config;
use crate::router::{self, Discovery};
use crate::runtime::launch::Launcher;
use crate::runtime::{Runtime, process};
use crate::vendors::library::FlagosKernels;
use crate::vendors::{self, BuiltIn, Description, Missing, Settings, VendorEntry, VendorReport};

use super::status::{catch, device_index, fail, give, status};
use super::types::{FLAGOS_OK, FlagosDeviceProperties};

inventory::submit! {
    Discovery(|vendor_path| {
        let settings = Settings { vendor_path: vendor_path.to_owned(), ..Settings::default() };
        vendors::names(&settings).map(Arc::new)
    })
}

/// Reads the configuration, opens the vendor and publishes the plan, once per process. After a
/// failure the next call tries again.
pub fn initialize() -> Result<&'static Runtime> {
    process::start(|| {
        let (entry, settings) = configured_vendor()?;
        entry.description()?;
        let router = router::global();
        router.set_active_vendor(entry.name())?;
        router.resolve()?;
        let vendor = entry.open(&settings, process::pending())?;
        let runtime = Runtime::new(vendor)?;
        // Nobody set it before: `start` makes one runtime per process.
        let _ = SERVING.set(entry);
        Ok(runtime)
    })
}

/// The vendor whose devices the runtime uses.
static SERVING: OnceLock<&dyn VendorEntry> = OnceLock::new();

fn configured_vendor() -> Result<(&'static dyn VendorEntry, Settings)> {
    let config = router::global().config()?;
    let settings = settings(&config);
    let entry = vendors::select(config.vendor(), &settings)?;
    Ok((entry, settings))
}

/// The vendor of this build that has this name, with the settings of the configuration. Opens nothing.
pub fn built_in_vendor(name: &str) -> Result<(&'static BuiltIn, Settings)> {
    let config = router::global().config()?;
    let entry = vendors::built_in_named(name).ok_or_else(|| {
        Error::invalid_argument(
            "vendor",
            format!("flagos has no vendor `{name}` of its own"),
        )
        .with_hint("name the library of a vendor, or its manifest")
    })?;
    Ok((entry, settings(&config)))
}

/// The product name of the first device of a vendor, found without opening the vendor in this process; `None` where that
/// is not possible, and for the vendors of this build, which have no name before they are open.
pub fn product_name(vendor: &str) -> Result<Option<String>> {
    // A name that an open vendor alone has would tell two programs of one machine that they run on different chips.
    if vendors::built_in_named(vendor).is_some() {
        return Ok(None);
    }
    match process::get() {
        Some(runtime) if runtime.vendor().name() == vendor => {
            Ok(Some(runtime.vendor().properties(0)?.name))
        }
        _ if process::is_forked() => Err(Error::forked("product_name")),
        _ => {
            let config = router::global().config()?;
            let entry = vendors::named(vendor, &settings(&config))?;
            Ok(entry.and_then(|entry| entry.product_name()))
        }
    }
}

/// The vendors whose chip this machine has, and whose distribution is not installed. Loads no library.
pub fn missing_vendors() -> Result<Vec<Missing>> {
    let config = router::global().config()?;
    vendors::missing(&settings(&config))
}

/// The vendor that would serve this process: the one that `FLAGOS_VENDOR` names, else the best one present. With a
/// mistake in the configuration it is the best one too, because [`initialize`] reports the mistake at the first use of
/// a device.
fn would_serve() -> Result<&'static dyn VendorEntry> {
    match configured_vendor() {
        Ok((entry, _)) => Ok(entry),
        Err(_) => vendors::select(None, &Settings::default()),
    }
}

/// The vendor that serves this process, or [would serve](would_serve) it. Opens nothing.
pub fn chosen_vendor() -> Result<&'static str> {
    match process::get() {
        Some(runtime) => Ok(runtime.vendor().name()),
        None if process::is_forked() => Err(Error::forked("vendor")),
        None => Ok(would_serve()?.name()),
    }
}

/// The description of the vendor that serves this process, or [would serve](would_serve) it. Opens no device. Fails when
/// the vendor is a library that cannot be loaded.
pub fn chosen_description() -> Result<&'static Description> {
    serving()?.description()
}

/// The kernels of the vendor that serves this process, or [would serve](would_serve) it, if it is a library that has any.
/// Opens no device.
pub(super) fn chosen_kernels() -> Result<Option<&'static FlagosKernels>> {
    serving()?.kernels()
}

fn serving() -> Result<&'static dyn VendorEntry> {
    match SERVING.get() {
        _ if process::is_forked() => Err(Error::forked("vendor")),
        Some(entry) => Ok(*entry),
        None => would_serve(),
    }
}

/// The launcher of functions that a Triton backend loads: of the vendor in use, else of one that need not be open for it.
/// Fails with `Unsupported` where there is none.
pub fn triton_launcher(backend: &str) -> Result<&'static dyn Launcher> {
    let serves = |entry: &&'static dyn VendorEntry| {
        let description = entry.description();
        description.is_ok_and(|known| known.triton_backend.as_deref() == Some(backend))
    };
    if let Some(serving) = serving().ok().filter(serves) {
        if let Some(runtime) = process::get() {
            return runtime.vendor().launcher();
        }
        // Several vendors may launch what one back end loads.
        return match serving.launcher() {
            Some(launcher) => Ok(launcher),
            // A library launches once it is open.
            None => initialize()?.vendor().launcher(),
        };
    }
    vendors::triton_launcher(backend).ok_or_else(|| {
        let message =
            format!("no vendor in use launches the kernels of Triton's backend `{backend}`");
        Error::unsupported("launcher", message)
            .with_hint("`flagos devices` tells the vendors; FLAGOS_VENDOR chooses one")
    })
}

fn settings(config: &Config) -> Settings {
    Settings {
        host: config.host.clone(),
        variables: config.vendor_variables.clone(),
        vendor_path: config.vendor_path.clone(),
    }
}

/// The reports on every vendor that is found, the best first. Initialises nothing, and runs no code of a library.
pub fn vendor_reports() -> Result<Vec<VendorReport>> {
    if process::is_forked() {
        return Err(Error::forked("vendors"));
    }
    let config = router::global().config()?;
    vendors::report(config.vendor(), &settings(&config))
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
            let unusable = |reason| Error::config("FLAGOS_VENDOR", reason);
            entry.survey(&settings).map_err(unusable)?
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
