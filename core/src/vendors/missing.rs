//! Vendors whose chip this machine has, and whose distribution is not installed.

use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::descriptions::wheels::{WHEELS, Wheel};

use super::discovery::DeviceFiles;

/// The source of such a vendor in a report.
pub const SOURCE: &str = "not installed";

/// A vendor that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The vendor's name.
    pub name: &'static str,
    /// The device file or the library by which the machine is known to have the chip.
    pub sign: String,
    /// The distribution with the vendor's library.
    pub distribution: String,
    /// The command that installs it.
    pub install: String,
}

/// A distribution that no manifest in use is of.
pub(super) struct Absent(&'static Wheel);

/// The distributions of the vendors that have none of these names.
pub(super) fn absent<'n>(found: impl Iterator<Item = &'n str>) -> Vec<Absent> {
    let found: Vec<_> = found.collect();
    let wheels = WHEELS.iter();
    let absent = wheels.filter(|wheel| !found.contains(&wheel.vendor));
    absent.map(Absent).collect()
}

impl Absent {
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.0.is_called(name)
    }

    /// The command that installs it.
    pub(super) fn install(&self) -> String {
        self.0.install()
    }

    /// What is missing, as the second half of a sentence.
    pub(super) fn reason(&self) -> String {
        format!(
            "the distribution {} is not installed",
            self.0.distribution()
        )
    }

    /// What is missing, and the command that installs it.
    pub(super) fn remedy(&self) -> String {
        format!("{}: {}", self.reason(), self.install())
    }

    /// The vendor, if a device file of its chip or the library of its runtime is here.
    pub(super) fn missing(&self) -> Option<Missing> {
        let Self(wheel) = self;
        let sign = if self.has_device() {
            wheel.device_files.to_owned()
        } else {
            find(wheel.runtime)?.display().to_string()
        };
        Some(Missing {
            name: wheel.vendor,
            sign,
            distribution: wheel.distribution(),
            install: wheel.install(),
        })
    }

    /// Warns, once per process, of a device that nothing serves.
    pub(super) fn warn(&self) {
        static WARNED: [Once; WHEELS.len()] = [const { Once::new() }; WHEELS.len()];
        let place = WHEELS.iter().position(|wheel| std::ptr::eq(wheel, self.0));
        if let Some(once) = place
            .map(|place| &WARNED[place])
            .filter(|_| self.has_device())
        {
            let Self(wheel) = self;
            once.call_once(|| {
                tracing::warn!(
                    "this machine has {}, and {}",
                    wheel.device_files,
                    self.remedy()
                );
            });
        }
    }

    /// Whether a device file of the chip exists.
    fn has_device(&self) -> bool {
        DeviceFiles::parse(self.0.device_files).is_ok_and(|files| files.exist())
    }
}

/// The library's file in a folder in which the dynamic linker searches first. Opens nothing.
fn find(runtime: &str) -> Option<PathBuf> {
    let searched = std::env::var_os("LD_LIBRARY_PATH")?;
    let folders = std::env::split_paths(&searched);
    let mut files = folders.filter(|folder| folder.is_absolute());
    files.find_map(|folder| Some(folder.join(runtime)).filter(|file| Path::exists(file)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_not_absent() {
        let names = |found: &[&'static str]| {
            let absent = absent(found.iter().copied());
            absent.iter().map(|one| one.0.vendor).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["ascend", "metax"]);
        assert_eq!(names(&["ascend", "host"]), ["metax"]);
    }

    #[test]
    fn every_wheels_device_files_are_a_pattern() {
        for wheel in &WHEELS {
            assert!(
                DeviceFiles::parse(wheel.device_files).is_ok(),
                "{}",
                wheel.vendor
            );
        }
    }
}
