//! Whether this machine has MetaX devices that this process may use, without initialising the runtime in it.
//!
//! The only certain way to count devices is to ask the runtime, which, once initialised, is taken to be broken in every
//! child forked afterwards. So a child is asked, once per process.
//!
//! Within the core's own trial of the library that is a child of a child. It stays, because `probe` must initialise nothing
//! in whatever process calls it: hosts of `flagos_vendor.h` need no trial, and `flagos vendor check` calls it without one. It
//! costs a fork, and no further start of the runtime, which the core's child does not initialise itself.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use flagos_core::vendors::trial;

use super::api::SONAME;
use super::driver;
use super::error::NOT_INITIALIZED;
use super::visible;

/// The file of MetaX's driver, without which the runtime finds no device.
const DEVICE_FILE: &str = "/dev/mxcd";
/// How long the runtime may take to answer for the first time.
const LIMIT: Duration = Duration::from_secs(120);

/// The answers about the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Machine {
    /// Whether [`DEVICE_FILE`] is there.
    device_file: bool,
    /// Whether the library is in this process already, as MetaX's torch, or a preloaded one.
    loaded: bool,
    /// The reason why the library cannot be opened. Without a device file nobody opens it: then whether there is its file.
    library: Result<(), String>,
}

/// The number of devices this process sees (at least one), or the reason why it sees none. `value` gives the variables that
/// choose devices, for messages.
pub(super) fn devices(value: impl Fn(&str) -> Option<String>) -> Result<usize, String> {
    decide(&look())?;
    static COUNTED: OnceLock<Result<usize, String>> = OnceLock::new();
    let counted = COUNTED.get_or_init(|| ask(count_here, count_in_child));
    at_least_one(counted.clone(), value)
}

/// As [`devices`], by initialising the runtime in this process.
pub(super) fn devices_here(value: impl Fn(&str) -> Option<String>) -> Result<usize, String> {
    decide(&look())?;
    at_least_one(count_here(), value)
}

fn at_least_one(
    counted: Result<usize, String>,
    value: impl Fn(&str) -> Option<String>,
) -> Result<usize, String> {
    match counted {
        Ok(0) => Err(format!(
            "{} shows no device: {}",
            SONAME,
            visible::told(value)
        )),
        Ok(count) => Ok(count),
        Err(reason) => Err(format!("{reason} ({})", visible::told(value))),
    }
}

fn look() -> Machine {
    let device_file = Path::new(DEVICE_FILE).exists();
    let loaded = driver::is_loaded();
    let library = if device_file || loaded {
        driver::open().map(drop).map_err(str::to_owned)
    } else {
        find_file(|name| std::env::var(name).ok())
    };
    Machine {
        device_file,
        loaded,
        library,
    }
}

/// Fails when the runtime is in none of the folders where it would be. Opens nothing.
fn find_file(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let searched = variable("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&searched).collect();
    folders.extend(variable("MACA_PATH").map(|path| Path::new(&path).join("lib")));
    folders.push("/opt/maca/lib".into());
    if folders.iter().any(|folder| folder.join(SONAME).exists()) {
        Ok(())
    } else {
        Err(format!(
            "{} is neither in LD_LIBRARY_PATH nor in /opt/maca/lib: install MACA",
            SONAME
        ))
    }
}

/// Fails with everything that is missing on a machine without devices.
fn decide(machine: &Machine) -> Result<(), String> {
    if machine.device_file || machine.loaded {
        return machine.library.clone();
    }
    let library = match &machine.library {
        Ok(()) => String::new(),
        Err(reason) => format!("; nor is there its runtime: {reason}"),
    };
    Err(format!(
        "this machine has no MetaX device: there is no file {DEVICE_FILE}{library}"
    ))
}

/// What a child counts; what this process counts where the runtime is initialised in it, by us or by another library, so
/// that a child cannot ask.
fn ask(
    here: impl FnOnce() -> Result<usize, String>,
    in_child: impl FnOnce() -> Result<usize, String>,
) -> Result<usize, String> {
    if driver::PROCESS.is_started() {
        return here();
    }
    match in_child() {
        Err(reason) if reason.contains(&format!("({NOT_INITIALIZED})")) => here(),
        counted => counted,
    }
}

fn count_here() -> Result<usize, String> {
    let counted = driver::initialize().map(|(_, count)| count);
    counted.map_err(|error| error.to_string())
}

fn count_in_child() -> Result<usize, String> {
    let api = driver::open().map_err(str::to_owned)?;
    trial::run(LIMIT, || {
        driver::count(api).map_err(|error| error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_missing_is_named() {
        let nothing = Machine {
            device_file: false,
            loaded: false,
            library: Err("libmcruntime.so is nowhere: install MACA".into()),
        };
        let reason = decide(&nothing).expect_err("there is nothing");
        assert_eq!(
            reason,
            "this machine has no MetaX device: there is no file /dev/mxcd; nor is there its runtime: \
             libmcruntime.so is nowhere: install MACA"
        );
        let without_library = Machine {
            device_file: true,
            ..nothing.clone()
        };
        assert!(
            decide(&without_library).is_err_and(|reason| reason.starts_with("libmcruntime.so"))
        );
        let without_device = Machine {
            library: Ok(()),
            ..nothing
        };
        assert!(decide(&without_device).is_err_and(|reason| reason.ends_with("/dev/mxcd")));
        let loaded = Machine {
            loaded: true,
            ..without_device
        };
        assert_eq!(decide(&loaded), Ok(()));
    }

    #[test]
    fn the_runtimes_file_is_looked_for_where_it_would_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let lib = folder.path().join("lib");
        std::fs::create_dir(&lib).expect("a folder");
        let set = |wanted: &'static str, path: &Path| {
            let path = path.display().to_string();
            move |name: &str| (name == wanted).then(|| path.clone())
        };
        let found = [
            find_file(set("MACA_PATH", folder.path())),
            find_file(set("LD_LIBRARY_PATH", &lib)),
        ];
        if !Path::new("/opt/maca/lib").exists() {
            assert!(found.iter().all(Result::is_err), "{found:?}");
        }
        std::fs::write(lib.join(SONAME), "").expect("a file");
        assert_eq!(find_file(set("MACA_PATH", folder.path())), Ok(()));
        assert_eq!(find_file(set("LD_LIBRARY_PATH", &lib)), Ok(()));
    }

    #[test]
    fn a_child_of_an_initialised_process_is_not_believed() {
        let refused = || Err("mcGetDeviceCount: mcErrorInitializationError (3); use".to_owned());
        assert_eq!(ask(|| Ok(2), refused), Ok(2));
        assert_eq!(ask(|| panic!("not here"), || Ok(1)), Ok(1));
        let crashed = ask(
            || panic!("not here"),
            || Err("ended by SIGSEGV in its probe".into()),
        );
        assert_eq!(crashed, Err("ended by SIGSEGV in its probe".into()));
    }

    #[test]
    fn looking_initialises_nothing() {
        let seen = devices(|_| None);
        assert!(!driver::PROCESS.is_started());
        if !driver::is_loaded() && !Path::new(DEVICE_FILE).exists() {
            let reason = seen.expect_err("there is no device");
            assert!(reason.contains(DEVICE_FILE), "{reason}");
        }
    }
}
