//! Whether this machine has NVIDIA devices that this process may use, without initialising CUDA.

use std::sync::OnceLock;

use flagos_vendor_kit::device_files;

use super::api::OLDEST;
use super::driver;
use super::nvml::{self, Listing, Unlisted};
use super::visible::Visible;

/// The answers about the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Machine {
    listing: Result<Listing, Unlisted>,
    /// Device files `/dev/nvidia0`, `/dev/nvidia1`, ...
    device_files: usize,
    /// The reason why CUDA's driver library cannot be used. Only asked when there is a device.
    driver: Result<(), String>,
}

/// The number of devices this process sees (at least one), or the reason why it sees none. The machine is
/// examined once; `visible` is the configuration's `CUDA_VISIBLE_DEVICES`.
pub(super) fn devices(visible: Option<&str>) -> Result<usize, String> {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    decide(MACHINE.get_or_init(look), visible)
}

fn look() -> Machine {
    let listing = nvml::list();
    let device_files = device_files::count("nvidia");
    let none = listing
        .as_ref()
        .map_or(device_files, |found| found.uuids.len())
        == 0;
    let driver = if none {
        Ok(())
    } else {
        driver::open().map(drop).map_err(str::to_owned)
    };
    Machine {
        listing,
        device_files,
        driver,
    }
}

fn decide(machine: &Machine, visible: Option<&str>) -> Result<usize, String> {
    let uuids: Vec<&str> = match &machine.listing {
        Ok(listing) => listing.uuids.iter().map(String::as_str).collect(),
        Err(Unlisted::Broken(error)) => {
            return Err(format!(
                "the NVIDIA driver does not work: {error}; `nvidia-smi` must work first"
            ));
        }
        Err(Unlisted::NoAnswer(error)) if machine.device_files == 0 => {
            return Err(format!(
                "no NVIDIA driver and no device file was found: {error}"
            ));
        }
        Err(Unlisted::NoAnswer(_)) => vec![""; machine.device_files],
    };
    if uuids.is_empty() {
        return Err("this machine has no NVIDIA device".into());
    }
    machine.driver.clone()?;
    let version = machine.listing.as_ref().ok().and_then(|l| l.cuda_version);
    if let Some(version) = version.filter(|version| *version < OLDEST) {
        return Err(driver::too_old(version));
    }
    let parsed = Visible::parse(visible);
    // Without a listing UUIDs cannot be looked up, so that each one named counts.
    if let (Visible::Uuids(names), Err(_)) = (&parsed, &machine.listing) {
        return Ok(names.len().min(uuids.len()));
    }
    let seen = parsed.among(&uuids).map_err(|reason| {
        let text = visible.unwrap_or_default();
        format!("CUDA_VISIBLE_DEVICES=`{text}` hides every NVIDIA device: {reason}")
    })?;
    Ok(seen.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(devices: usize) -> Result<Listing, Unlisted> {
        let uuid = |device| format!("GPU-{device}");
        Ok(Listing {
            uuids: (0..devices).map(uuid).collect(),
            cuda_version: Some(12_080),
        })
    }

    fn machine(listing: Result<Listing, Unlisted>, device_files: usize) -> Machine {
        Machine {
            listing,
            device_files,
            driver: Ok(()),
        }
    }

    #[test]
    fn devices_are_counted() {
        let two = machine(listing(2), 2);
        assert_eq!(decide(&two, None), Ok(2));
        assert_eq!(decide(&two, Some("1")), Ok(1));
        assert_eq!(decide(&two, Some("GPU-1,GPU-0")), Ok(2));
        assert_eq!(decide(&two, Some("MIG-1,MIG-2")), Ok(1));
        let unlisted = machine(Err(Unlisted::NoAnswer("no library".into())), 3);
        assert_eq!(decide(&unlisted, None), Ok(3));
        assert_eq!(decide(&unlisted, Some("0,2")), Ok(2));
        assert_eq!(decide(&unlisted, Some("GPU-x,GPU-y")), Ok(2));
    }

    #[test]
    fn having_none_has_a_reason() {
        let no_answer = || Err(Unlisted::NoAnswer("libnvidia-ml.so.1: not found".into()));
        let broken = Err(Unlisted::Broken("Driver/library version mismatch".into()));
        let without_library = Machine {
            driver: Err("libcuda.so.1: cannot open".into()),
            ..machine(listing(1), 1)
        };
        let old = listing(1).map(|listing| Listing {
            cuda_version: Some(10_020),
            ..listing
        });
        for (machine, visible, says) in [
            (machine(no_answer(), 0), None, "no NVIDIA driver"),
            (machine(broken, 1), None, "version mismatch; `nvidia-smi`"),
            (
                machine(listing(0), 0),
                None,
                "this machine has no NVIDIA device",
            ),
            (without_library, None, "libcuda.so.1: cannot open"),
            (
                machine(old, 1),
                None,
                "speaks CUDA 10.2; install one for CUDA 11.0",
            ),
            (
                machine(listing(2), 2),
                Some(""),
                "CUDA_VISIBLE_DEVICES=`` hides every NVIDIA device: it names none of this machine's 2",
            ),
            (machine(listing(2), 2), Some("0,0"), "it names 0 twice"),
        ] {
            let reason = decide(&machine, visible).expect_err(says);
            assert!(reason.contains(says), "`{says}` is missing in `{reason}`");
        }
    }

    #[test]
    fn looking_initialises_nothing() {
        look();
        assert!(!driver::PROCESS.is_started());
    }
}
