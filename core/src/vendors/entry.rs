//! How a vendor registers itself.

use std::sync::Arc;

use crate::env::HostSettings;
use crate::error::Result;
use crate::runtime::sync::AtomicU64;
use crate::runtime::Vendor;

/// The settings of the configuration that concern vendors.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The settings of the host vendor.
    pub host: HostSettings,
    /// `CUDA_VISIBLE_DEVICES`; empty hides every device.
    pub cuda_visible_devices: Option<String>,
}

/// A function that opens a vendor with these settings and this count of unfinished work.
pub type Open = fn(&Settings, Arc<AtomicU64>) -> Result<Arc<dyn Vendor>>;

/// A vendor's registration: its name, and the questions it answers before it is opened.
#[derive(Debug)]
pub struct VendorEntry {
    /// The name `FLAGOS_VENDOR` selects it by.
    pub name: &'static str,
    /// Of the available vendors the one with the highest rank is chosen.
    pub rank: i32,
    /// The reason why the vendor cannot be used here, if there is one. Initialises nothing.
    pub unavailable: fn(&Settings) -> Option<String>,
    /// The number of devices the vendor would show. Initialises nothing.
    pub device_count: fn(&Settings) -> usize,
    /// Opens the vendor, which counts unfinished work in the number given: see [`Vendor::pending`].
    pub open: Open,
}

inventory::collect!(VendorEntry);
