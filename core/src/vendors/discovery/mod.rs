//! Vendors found at run time: libraries that manifests tell of. Finding them loads nothing.
//!
//! Manifests are looked for in the places of `FLAGOS_VENDOR_PATH`, and in those that [`add`] was told: packages that
//! contribute a manifest, and the folder of flagos' own.

mod found;
mod manifest;

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::error::{Error, Result};

use super::entry::{Settings, VendorEntry};
use found::Found;

pub use manifest::{DeviceFiles, Manifest, check_library};

/// A place of manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A folder, whose files `*.toml` are manifests. It need not exist.
    Folder(PathBuf),
    /// A manifest that a package contributes.
    Manifest(PathBuf),
    /// A vendor that a package contributes without a manifest.
    Missing {
        /// The vendor's name.
        name: String,
        /// The contribution.
        origin: String,
        /// The reason why there is no manifest.
        reason: String,
    },
}

static PLACES: Mutex<Vec<Place>> = Mutex::new(Vec::new());

/// Looks for manifests in this place too, from now on.
pub fn add(place: Place) {
    let mut places = PLACES.lock();
    if !places.contains(&place) {
        places.push(place);
    }
}

/// Every vendor that a manifest tells of, those that cannot be used included. Fails with `Config` when
/// `FLAGOS_VENDOR_PATH` names what does not exist.
pub(super) fn find(settings: &Settings) -> Result<Vec<&'static dyn VendorEntry>> {
    let mut files = Vec::new();
    for path in &settings.vendor_path {
        let wrong = |what: String| {
            Error::config("FLAGOS_VENDOR_PATH", format!("{} {what}", path.display()))
                .with_hint("name manifests (`*.toml`), or folders with manifests")
        };
        if path.is_dir() {
            files.extend(
                manifests(path).map_err(|error| wrong(format!("cannot be read: {error}")))?,
            );
        } else if path.exists() {
            files.push(path.clone());
        } else {
            return Err(wrong("does not exist".into()));
        }
    }
    let mut missing = Vec::new();
    for place in PLACES.lock().iter() {
        match place {
            Place::Folder(folder) => files.extend(manifests(folder).unwrap_or_default()),
            Place::Manifest(file) => files.push(file.clone()),
            Place::Missing {
                name,
                origin,
                reason,
            } => {
                missing.push(Found::missing(origin.into(), name.clone(), reason.clone()));
            }
        }
    }
    // A file may be found twice.
    let mut seen: Vec<PathBuf> = Vec::new();
    files.retain(|file| {
        let identity = file.canonicalize().unwrap_or_else(|_| file.clone());
        let new = !seen.contains(&identity);
        seen.push(identity);
        new
    });
    let read = files.iter().map(|file| Found::read(file));
    Ok(read.chain(missing).map(cached).collect())
}

/// The manifests in a folder, by name.
fn manifests(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The one entry for this vendor in the process, which keeps its library and the outcome of its trial.
fn cached(found: Found) -> &'static dyn VendorEntry {
    static CACHE: Mutex<Vec<&'static Found>> = Mutex::new(Vec::new());
    let mut cached = CACHE.lock();
    if let Some(known) = cached.iter().find(|known| known.is(&found)) {
        return *known;
    }
    let found: &'static Found = Box::leak(Box::new(found));
    cached.push(found);
    found
}
