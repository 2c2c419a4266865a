//! What `flagos vendor check` runs of a vendor. Its Python side calls each function in a process of its own.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flagos_core::runtime::Vendor;
use flagos_core::vendors::discovery::{self, Manifest};
use flagos_core::vendors::library::{self, Library, Step};
use flagos_core::{Error, Result, abi};
use flagos_vendor_kit::conformance::{self, CHECKS};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::IntoPython as _;

/// The time that a check gives a wrong vendor to do what a right one does not. A right vendor pays it some ten times in
/// the whole suite.
const PATIENCE: Duration = Duration::from_millis(200);

#[pyfunction]
fn conformance_checks(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let describe = |check: &conformance::Check| {
        let described = PyDict::new(py);
        described.set_item("name", check.name)?;
        described.set_item("proves", check.proves)?;
        described.set_item("functions", check.functions)?;
        Ok(described)
    };
    CHECKS.iter().map(describe).collect()
}

/// Takes and opens the vendor. Tells of each step that has passed, by its name, with what it has shown.
#[pyfunction]
fn take_vendor(py: Python<'_>, target: String, passed: Py<PyAny>) -> PyResult<()> {
    let mut failed = None;
    let mut tell = |step: &str, shown: String| {
        if failed.is_none() {
            failed = Python::attach(|py| passed.call1(py, (step, shown))).err();
        }
    };
    py.detach(|| take(&target, &mut tell)).into_python(py)?;
    failed.map_or(Ok(()), Err)
}

fn take(target: &str, tell: &mut dyn FnMut(&str, String)) -> Result<()> {
    let vendor = match Target::of(target) {
        Target::File(file) => {
            let library = take_library(file, tell)?;
            tell("probe", devices(library.probe()?));
            library::open(library, new_count())?
        }
        Target::Name(name) => {
            let (entry, settings) = abi::built_in_vendor(name)?;
            let count = (entry.survey)(&settings);
            let count = count.map_err(|reason| Error::device("probe", reason))?;
            tell("probe", devices(count));
            (entry.open)(&settings, new_count())?
        }
    };
    tell("open", devices(vendor.device_count()));
    tell("devices", described(&*vendor)?);
    Ok(())
}

/// The subject of a check.
enum Target<'t> {
    /// A library, or a manifest.
    File(&'t Path),
    /// A vendor of this build.
    Name(&'t str),
}

impl<'t> Target<'t> {
    /// The slash in its path identifies a file.
    fn of(target: &'t str) -> Self {
        if target.contains('/') {
            Self::File(Path::new(target))
        } else {
            Self::Name(target)
        }
    }
}

/// Takes the library in a file, or the one that a manifest names.
fn take_library(file: &Path, tell: &mut dyn FnMut(&str, String)) -> Result<&'static Library> {
    let wrong = |what: String| Error::config("vendor", what).with_context("at", file.display());
    let manifest = manifest(file).transpose().map_err(wrong)?;
    let path = match &manifest {
        Some(manifest) => {
            tell(
                "manifest",
                format!("{}, {}", manifest.name, manifest.library.display()),
            );
            manifest.check().map_err(wrong)?
        }
        None => discovery::check_library(file).map_err(wrong)?,
    };
    let mut described = None;
    let taken = Library::load_by_steps(&path, &mut |step, shown| match step {
        // Told when it agrees with the manifest.
        Step::Description => described = Some(shown),
        // Told when the names were asked for.
        Step::Kernels => {}
        _ => tell(step.name(), shown),
    });
    if let (Ok(library), Some(manifest)) = (&taken, &manifest) {
        manifest.agree(library.description()).map_err(wrong)?;
    }
    if let Some(shown) = described {
        tell(Step::Description.name(), shown);
    }
    let library = taken?;
    tell(Step::Kernels.name(), listed(library)?);
    Ok(library)
}

/// The manifest in a file, if the file is one.
fn manifest(file: &Path) -> Option<Result<Manifest, String>> {
    let is_manifest = file
        .extension()
        .is_some_and(|extension| extension == "toml");
    is_manifest.then(|| Manifest::read(file))
}

/// A count of unfinished work, for a vendor whose work may outlive it.
fn new_count() -> &'static std::sync::atomic::AtomicU64 {
    Box::leak(Box::default())
}

fn devices(count: usize) -> String {
    match count {
        1 => "1 device".into(),
        _ => format!("{count} devices"),
    }
}

/// The kernels that a library lists, of which it has to find each.
fn listed(library: &Library) -> Result<String> {
    let Some(kernels) = library.kernels() else {
        return Ok("none: another one computes on its devices".into());
    };
    for name in kernels.names() {
        if find(library, name)?.is_none() {
            let message = format!("`names` lists {name}, and `find` does not know it");
            return Err(Error::config("vendor library", message));
        }
    }
    let (major, minor) = kernels.version();
    Ok(match kernels.names() {
        [] => format!("version {major}.{minor}; `names` lists none"),
        names => format!("version {major}.{minor}: {}", names.join(", ")),
    })
}

/// The name, if the library has a kernel for it.
fn find<'n>(library: &Library, name: &'n str) -> Result<Option<&'n str>> {
    let text = CString::new(name)
        .map_err(|error| Error::invalid_argument("operator", error.to_string()))?;
    Ok(library.kernel(&text)?.map(|_| name))
}

fn described(vendor: &dyn Vendor) -> Result<String> {
    let devices = (0..vendor.device_count()).map(|device| {
        let properties = vendor.properties(device)?;
        let memory = vendor.memory(device)?;
        let mebibytes = memory.total >> 20;
        Ok(format!("{} ({mebibytes} MiB)", properties.name))
    });
    Ok(devices.collect::<Result<Vec<_>>>()?.join(", "))
}

/// The assumptions of a vendor's library about a library beneath it: the name and grade of each declaration.
#[pyfunction]
fn vendor_declarations(py: Python<'_>, target: String) -> PyResult<Vec<(String, char)>> {
    let declared = || match Target::of(&target) {
        Target::File(file) => Ok(take_library(file, &mut |_, _| ())?.declarations().to_vec()),
        Target::Name(_) => Ok(Vec::new()),
    };
    py.detach(declared).into_python(py)
}

/// Tries out one of them on the first device. Returns what it shows, and whether that is what is expected.
#[pyfunction]
fn try_declaration(py: Python<'_>, file: String, name: String) -> PyResult<(String, bool)> {
    let run = || {
        let library = take_library(Path::new(&file), &mut |_, _| ())?;
        let mut declared = library.declarations().iter();
        let index = declared.position(|(known, _)| *known == name);
        let index = index.ok_or_else(|| {
            Error::invalid_argument("declaration", format!("the library declares no `{name}`"))
        })?;
        let tried = library.try_declaration(index);
        Ok(tried.map_or_else(|wrong| (wrong, false), |shown| (shown, true)))
    };
    py.detach(run).into_python(py)
}

/// Opens the vendor and runs one check of the suite. Returns what is wrong, if something is.
#[pyfunction]
fn check_vendor(py: Python<'_>, target: String, name: String) -> PyResult<Option<String>> {
    let run = || {
        let check = conformance::named(&name).ok_or_else(|| {
            Error::invalid_argument("check", format!("there is no check `{name}`"))
        })?;
        let vendor = open(&target)?;
        Ok(check.run(&*vendor, PATIENCE).err())
    };
    py.detach(run).into_python(py)
}

fn open(target: &str) -> Result<Arc<dyn Vendor>> {
    match Target::of(target) {
        Target::File(file) => library::open(take_library(file, &mut |_, _| ())?, new_count()),
        Target::Name(name) => {
            let (entry, settings) = abi::built_in_vendor(name)?;
            (entry.open)(&settings, new_count())
        }
    }
}

/// Those of `names` that the library in a file has kernels for. `None`: it has no kernels at all.
#[pyfunction]
fn find_kernels(py: Python<'_>, file: String, names: Vec<String>) -> PyResult<Option<Vec<String>>> {
    let search = || {
        let library = take_library(Path::new(&file), &mut |_, _| ())?;
        if library.kernels().is_none() {
            return Ok(None);
        }
        let found = names.iter().map(|name| find(library, name));
        let found = found.filter_map(Result::transpose);
        Ok(Some(
            found
                .map(|name| name.map(str::to_owned))
                .collect::<Result<_>>()?,
        ))
    };
    py.detach(search).into_python(py)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(conformance_checks, module)?)?;
    module.add_function(wrap_pyfunction!(take_vendor, module)?)?;
    module.add_function(wrap_pyfunction!(vendor_declarations, module)?)?;
    module.add_function(wrap_pyfunction!(try_declaration, module)?)?;
    module.add_function(wrap_pyfunction!(check_vendor, module)?)?;
    module.add_function(wrap_pyfunction!(find_kernels, module)?)
}
