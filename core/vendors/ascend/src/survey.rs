//! Whether this machine has Ascend devices that this process may use, without initialising the ACL runtime.

use flagos_vendor_kit::device_files;

use super::api::{Api, Code, SONAME, SUCCESS};
use super::driver;
use super::error::failed;
use super::visible;

/// The number of devices this process sees (at least one), or the reason why it sees none. `visible` is the
/// configuration's `ASCEND_RT_VISIBLE_DEVICES`. Loads the library only where there is a device.
pub(super) fn devices(visible: Option<&str>) -> Result<usize, String> {
    let files = device_files();
    if files == 0 {
        return in_this_process();
    }
    let seen = visible::among(visible, files)?;
    driver::open().map_err(str::to_owned)?;
    Ok(seen.len())
}

/// The number of devices that a library tells which somebody has loaded on a machine without a device: a simulator.
fn in_this_process() -> Result<usize, String> {
    if !driver::is_loaded() {
        return Err("this machine has no Ascend device: there is no file /dev/davinci0".into());
    }
    let api = driver::open().map_err(str::to_owned)?;
    let mut count = 0;
    // SAFETY: a valid output; the question needs no initialisation.
    let code = unsafe { (api.aclrtGetDeviceCount)(&mut count) };
    match (code, usize::try_from(count)) {
        (SUCCESS, Ok(count @ 1..)) => Ok(count),
        _ => Err(format!(
            "there is no file /dev/davinci0, and {SONAME} shows no device{}",
            why(api, code)
        )),
    }
}

/// What the runtime says of a count that failed.
fn why(api: &Api, code: Code) -> String {
    match code {
        SUCCESS => String::new(),
        _ => format!(": {}", failed(api, "aclrtGetDeviceCount", code)),
    }
}

/// The number of devices by their files. `/dev/davinci_manager` is no device. In a container their numbers are those of the
/// host, while the runtime numbers the devices from 0.
fn device_files() -> usize {
    device_files::count("davinci")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_initialises_nothing() {
        let seen = devices(None);
        assert!(!driver::PROCESS.is_started());
        if device_files() == 0 && !driver::is_loaded() {
            let reason = seen.expect_err("there is no device");
            assert!(reason.contains("/dev/davinci0"), "{reason}");
        }
    }
}
