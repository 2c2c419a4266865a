//! The vendors: those of this build, those that manifests tell of, and the choice of the one in use.
//!
//! `host` is a module here; every other vendor of this build is a crate of its own in `core/vendors`. Each registers
//! itself with `inventory`. The linker drops what no code names, so the module that links a vendor names its crate.

pub mod discovery;
#[cfg(all(test, not(loom)))]
mod doubles;
mod entry;
pub mod host;
pub mod library;
mod selection;
pub mod trial;

pub use entry::{BuiltIn, Declaration, Open, Settings, VendorEntry};
pub use selection::VendorReport;

use crate::descriptions::Names;
pub use crate::descriptions::{Description, Serving};
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

/// Every vendor that is found.
fn catalogue(settings: &Settings) -> Result<Catalogue> {
    let mut entries: Vec<&'static dyn VendorEntry> = Vec::new();
    entries.extend(built_in().map(|entry| entry as &dyn VendorEntry));
    entries.extend(discovery::find(settings)?);
    Ok(Catalogue::new(entries, *PREFERRED.lock()))
}

/// The vendor of this build that [`prefer`] was told.
static PREFERRED: Mutex<Option<&'static str>> = Mutex::new(None);

/// Tries this vendor of this build before all others, when none is asked for by name: a framework of this process serves
/// its devices, and those of no other vendor. Fails for a name that no vendor of this build has.
pub fn prefer(name: &str) -> Result<()> {
    let found = built_in().find(|entry| entry.name() == name);
    let entry = found.ok_or_else(|| {
        let names: Vec<_> = built_in().map(|entry| entry.name()).collect();
        Error::invalid_argument(
            "prefer",
            format!("flagos has no vendor `{name}` of its own"),
        )
        .with_hint(format!("there are {}", names.join(", ")))
    })?;
    *PREFERRED.lock() = Some(entry.name());
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
        assert!(names
            .iter()
            .copied()
            .eq(declared.map(|vendor| vendor.name.as_str())));
    }
}
