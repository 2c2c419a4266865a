//! A vendor that a manifest describes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::descriptions::Description;
use crate::error::{Error, Result};
use crate::runtime::Vendor;
use crate::runtime::sync::AtomicU64;
use crate::vendors::entry::{Settings, VendorEntry};
use crate::vendors::library::{self, FlagosKernels, Kernels, Library};

use super::manifest::Manifest;
use crate::vendors::trial;

/// How long a library may take to be loaded and to count its devices: a runtime of many devices may be slow at first.
const LIMIT: Duration = Duration::from_secs(120);

/// A vendor that a manifest describes. Its library is loaded by the first use of [`VendorEntry::description`] or
/// [`VendorEntry::open`]; before that, [`VendorEntry::survey`] loads it in a process of its own.
#[derive(Debug)]
pub(super) struct Found {
    /// The manifest's file, or what else tells of the vendor.
    origin: PathBuf,
    name: String,
    /// The manifest, or why it cannot be used.
    manifest: Result<Manifest, String>,
    trial: OnceLock<Result<usize, String>>,
    library: OnceLock<&'static Library>,
    product_name: OnceLock<Option<String>>,
}

impl Found {
    /// The vendor of the manifest in this file. A manifest that cannot be used gives its file's name to the vendor.
    pub(super) fn read(file: &Path) -> Self {
        let manifest = Manifest::read(file);
        let name = match &manifest {
            Ok(manifest) => manifest.name.clone(),
            Err(_) => file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        };
        Self::new(file.to_owned(), name, manifest)
    }

    /// A vendor whose manifest cannot be found, for this reason.
    pub(super) fn missing(origin: PathBuf, name: String, reason: String) -> Self {
        Self::new(origin, name, Err(reason))
    }

    fn new(origin: PathBuf, name: String, manifest: Result<Manifest, String>) -> Self {
        Self {
            origin,
            name,
            manifest,
            trial: OnceLock::new(),
            library: OnceLock::new(),
            product_name: OnceLock::new(),
        }
    }

    /// Whether both tell of the same vendor in the same words.
    pub(super) fn is(&self, other: &Self) -> bool {
        (&self.origin, &self.name, &self.manifest) == (&other.origin, &other.name, &other.manifest)
    }

    /// The manifest and the path of the library, after the checks that load nothing.
    fn checked(&self) -> Result<(&Manifest, PathBuf), String> {
        let manifest = self.manifest.as_ref().map_err(Clone::clone)?;
        let path = manifest.check()?;
        Ok((manifest, path))
    }

    /// The library, loaded into this process.
    fn library(&'static self) -> Result<&'static Library> {
        if let Some(library) = self.library.get() {
            return Ok(library);
        }
        let (manifest, path) = self.checked().map_err(|reason| self.refused(reason))?;
        let library = Library::load(&path)?;
        manifest
            .agree(library.description())
            .map_err(|reason| self.refused(reason))?;
        Ok(self.library.get_or_init(|| library))
    }

    fn refused(&self, reason: String) -> Error {
        Error::config("vendor", reason).with_context("at", self.origin.display())
    }

    /// The devices that the library counts in a process of its own.
    fn try_out(&'static self) -> Result<usize, String> {
        let tried = trial::run(LIMIT, || {
            library::mute();
            let counted = self.library().and_then(Library::probe);
            counted.map_err(|error| error.to_string())
        });
        if let Err(reason) = &tried {
            tracing::warn!(
                vendor = self.name,
                reason,
                "a vendor's library cannot be used"
            );
        }
        tried
    }
}

impl VendorEntry for Found {
    fn name(&'static self) -> &'static str {
        &self.name
    }

    fn aliases(&'static self) -> &'static [String] {
        self.manifest
            .as_ref()
            .map_or(&[], |manifest| &manifest.aliases)
    }

    fn origin(&self) -> Option<&Path> {
        Some(&self.origin)
    }

    /// The manifest's rank. A manifest that cannot be used comes last.
    fn rank(&self) -> i32 {
        self.manifest
            .as_ref()
            .map_or(i32::MIN, |manifest| manifest.rank)
    }

    fn broken(&self) -> Option<&str> {
        self.manifest.as_ref().err().map(String::as_str)
    }

    fn passed_over(&self) -> Option<String> {
        let manifest = self.manifest.as_ref().ok()?;
        let name = &manifest.name;
        let files: Vec<_> = manifest
            .device_files
            .iter()
            .map(|files| files.written())
            .collect();
        match &manifest.device_files[..] {
            [] => Some(format!(
                "used only when FLAGOS_VENDOR={name} asks for it: its manifest names no device files"
            )),
            each if each.iter().any(|files| files.exist()) => None,
            _ => Some(format!(
                "this machine has no {}; FLAGOS_VENDOR={name} tries it nevertheless",
                files.join(", ")
            )),
        }
    }

    fn survey(&'static self, _: &Settings) -> Result<usize, String> {
        self.checked()?;
        self.trial.get_or_init(|| self.try_out()).clone()
    }

    fn known(&'static self, _: &Settings) -> Option<Result<usize, String>> {
        match self.checked() {
            Ok(_) => self.trial.get().cloned(),
            Err(reason) => Some(Err(reason)),
        }
    }

    fn description(&'static self) -> Result<&'static Description> {
        Ok(self.library()?.description())
    }

    fn kernels(&'static self) -> Result<Option<&'static FlagosKernels>> {
        Ok(self.library()?.kernels().map(Kernels::table))
    }

    fn product_name(&'static self) -> Option<String> {
        let ask = || {
            library::mute();
            let name = || {
                let vendor = library::open(self.library()?, Box::leak(Box::default()))?;
                vendor.properties(0).map(|properties| properties.name)
            };
            name().map_err(|error| error.to_string())
        };
        let usable = |_| trial::tell(LIMIT, ask).ok();
        let name = || self.survey(&Settings::default()).ok().and_then(usable);
        self.product_name.get_or_init(name).clone()
    }

    fn open(&'static self, _: &Settings, pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>> {
        library::open(self.library()?, pending)
    }
}
