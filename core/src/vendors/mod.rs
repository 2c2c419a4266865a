//! The vendors: those of this build, those that manifests tell of, and the choice of the one in use.
//!
//! `host` is a module here; every other vendor is a crate of its own in `core/vendors`, linked into the build or a library. Each registers
//! itself with `inventory`. The linker drops what no code names, so the module that links a vendor names its crate.

pub mod discovery;
#[cfg(all(test, not(loom)))]
mod doubles;
mod entry;
pub mod host;
pub mod library;
pub mod missing;
mod selection;
pub mod trial;

pub use entry::{BuiltIn, Open, Settings, VendorEntry};
pub use missing::Missing;
pub use selection::VendorReport;

pub use crate::descriptions::{Description, Serving};
use crate::descriptions::{Names, check_name};
use crate::error::{Error, Result};
use crate::runtime::launch::Launcher;
use parking_lot::Mutex;
use selection::Catalogue;

/// Every vendor of this build.
pub fn built_in() -> impl Iterator<Item = &'static BuiltIn> {
    // Naming the module keeps its registration in the binary.
    let _named = &host::ENTRY;
    inventory::iter::<BuiltIn>()
}

/// The vendor of this build that has this name.
#[must_use]
pub fn built_in_named(name: &str) -> Option<&'static BuiltIn> {
    built_in().find(|entry| entry.name() == name)
}

/// Every vendor that is found.
fn catalogue(settings: &Settings) -> Result<Catalogue> {
    let mut entries: Vec<&'static dyn VendorEntry> = Vec::new();
    entries.extend(built_in().map(|entry| entry as &dyn VendorEntry));
    entries.extend(discovery::find(settings)?);
    Ok(Catalogue::new(entries, PREFERRED.lock().as_deref()))
}

/// The name that [`prefer`] got.
static PREFERRED: Mutex<Option<String>> = Mutex::new(None);

/// Tries the vendor of this name before all others, when none is asked for by name: a framework of this process serves
/// its devices, and those of no other vendor. Fails for what is no name of a vendor.
pub fn prefer(name: &str) -> Result<()> {
    check_name(name).map_err(|wrong| Error::invalid_argument("prefer", wrong))?;
    *PREFERRED.lock() = Some(name.to_owned());
    Ok(())
}

/// The names of every vendor that is found. Loads no library.
pub fn names(settings: &Settings) -> Result<Names> {
    Ok(catalogue(settings)?.names())
}

/// The vendor that has the name or alias `name`, or the best available one. A name is never replaced by another. Loads
/// no library into this process.
pub fn select(name: Option<&str>, settings: &Settings) -> Result<&'static dyn VendorEntry> {
    catalogue(settings)?.select(name, settings)
}

/// Reports on every vendor, the best first. `name` is that of `FLAGOS_VENDOR`. Runs no code of a library.
pub fn report(name: Option<&str>, settings: &Settings) -> Result<Vec<VendorReport>> {
    Ok(catalogue(settings)?.report(name, settings))
}

/// The vendors whose chip this machine has, and whose distribution is not installed. Loads no library.
pub fn missing(settings: &Settings) -> Result<Vec<Missing>> {
    Ok(catalogue(settings)?.missing())
}

/// The vendor that has this name. Loads no library.
pub fn named(name: &str, settings: &Settings) -> Result<Option<&'static dyn VendorEntry>> {
    Ok(catalogue(settings)?.named(name))
}

/// The launcher of functions that a Triton backend loads, of a vendor that need not be open for it.
pub fn triton_launcher(backend: &str) -> Option<&'static dyn Launcher> {
    let mut launchers = built_in().filter_map(|entry| {
        let launcher = entry.launcher()?;
        let known = (entry.description)().triton_backend.as_deref();
        (known == Some(backend)).then_some(launcher)
    });
    launchers.next()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_vendor_that_is_linked_declares_its_description() {
        let mut names: Vec<_> = built_in().map(|entry| entry.name()).collect();
        names.sort_unstable();
        assert!(names.contains(&"host"));
        let declared = crate::descriptions::built_in().into_iter();
        assert!(
            names
                .iter()
                .copied()
                .eq(declared.map(|vendor| vendor.name.as_str()))
        );
    }
}
