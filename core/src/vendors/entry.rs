//! How a vendor presents itself before it is opened.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::HostSettings;
use crate::error::Result;
use crate::runtime::Vendor;
use crate::runtime::launch::Launcher;
use crate::runtime::sync::AtomicU64;

use super::library::FlagosKernels;
use crate::descriptions::Description;

/// The settings of the configuration that concern vendors.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The settings of the host vendor.
    pub host: HostSettings,
    /// The vendors' own variables that are set, by name, empty values included.
    pub variables: BTreeMap<String, String>,
    /// `FLAGOS_VENDOR_PATH`: manifests of vendors, and folders of manifests.
    pub vendor_path: Vec<PathBuf>,
}

impl Settings {
    /// The settings of a process in which no configuration is read: the vendor's own variables that are set.
    #[must_use]
    pub fn of_process(description: &Description) -> Self {
        let variables = description.variables.iter().filter_map(|variable| {
            let value = std::env::var_os(&variable.name)?;
            Some((variable.name.clone(), value.to_string_lossy().into_owned()))
        });
        Self {
            variables: variables.collect(),
            ..Self::default()
        }
    }
}

/// A vendor that can be chosen: its name, and the questions it answers before it is opened.
pub trait VendorEntry: Debug + Send + Sync {
    /// The name `FLAGOS_VENDOR` selects it by.
    fn name(&'static self) -> &'static str;

    /// Other names that select it.
    fn aliases(&'static self) -> &'static [String];

    /// The file that tells of the vendor. `None`: it is built in.
    fn origin(&self) -> Option<&Path> {
        None
    }

    /// The usable vendor with the highest rank is chosen.
    fn rank(&self) -> i32;

    /// The reason why the file that tells of the vendor cannot be used, if it cannot: the name is that of the file then.
    fn broken(&self) -> Option<&str> {
        None
    }

    /// The reason why the vendor is passed over when nobody asks for it by name, if there is one.
    fn passed_over(&self) -> Option<String> {
        None
    }

    /// The number of devices the vendor would show, at least one, or the reason why it cannot be used here. Initialises
    /// nothing, and loads no library into this process.
    fn survey(&'static self, settings: &Settings) -> Result<usize, String>;

    /// The result of [`Self::survey`], where that is known without running code of a library.
    fn known(&'static self, settings: &Settings) -> Option<Result<usize, String>> {
        Some(self.survey(settings))
    }

    /// The description of the vendor, whose library is loaded for it if there is one.
    fn description(&'static self) -> Result<&'static Description>;

    /// The kernels of the vendor's library, which is loaded for them.
    fn kernels(&'static self) -> Result<Option<&'static FlagosKernels>> {
        Ok(None)
    }

    /// Opens the vendor, which counts unfinished work in the number given: see [`Vendor::pending`].
    fn open(
        &'static self,
        settings: &Settings,
        pending: &'static AtomicU64,
    ) -> Result<Arc<dyn Vendor>>;

    /// The product name of the first device, found without opening the vendor in this process; `None` where that is not
    /// possible.
    fn product_name(&'static self) -> Option<String> {
        None
    }

    /// The launcher of functions that other libraries loaded, if it needs no open vendor.
    fn launcher(&self) -> Option<&'static dyn Launcher> {
        None
    }
}

/// A function that opens a vendor with these settings and this count of unfinished work.
pub type Open = fn(&Settings, &'static AtomicU64) -> Result<Arc<dyn Vendor>>;

/// A vendor of this build, which registers itself with `inventory`.
#[derive(Debug)]
pub struct BuiltIn {
    /// The vendor's description.
    pub description: fn() -> &'static Description,
    /// As [`VendorEntry::rank`].
    pub rank: i32,
    /// As [`VendorEntry::survey`].
    pub survey: fn(&Settings) -> Result<usize, String>,
    /// As [`VendorEntry::open`].
    pub open: Open,
    /// As [`VendorEntry::launcher`].
    pub launcher: Option<fn() -> &'static dyn Launcher>,
}

inventory::collect!(BuiltIn);

impl VendorEntry for BuiltIn {
    fn name(&'static self) -> &'static str {
        &(self.description)().name
    }

    fn aliases(&'static self) -> &'static [String] {
        &(self.description)().aliases
    }

    fn rank(&self) -> i32 {
        self.rank
    }

    fn survey(&'static self, settings: &Settings) -> Result<usize, String> {
        (self.survey)(settings)
    }

    fn description(&'static self) -> Result<&'static Description> {
        Ok((self.description)())
    }

    fn open(
        &'static self,
        settings: &Settings,
        pending: &'static AtomicU64,
    ) -> Result<Arc<dyn Vendor>> {
        (self.open)(settings, pending)
    }

    fn launcher(&self) -> Option<&'static dyn Launcher> {
        self.launcher.map(|launcher| launcher())
    }
}
