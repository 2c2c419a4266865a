//! The libraries of operators, as a process uses them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use flagos_core::error::Result;

use super::super::api::Api;
use super::super::driver;
use super::super::stream::AscendStream;
use super::super::variables::{EXECUTORS, value};
use super::cache::Cache;
use super::objects::Base;
use super::view::decline;

/// The most executors that are kept, unless the user says otherwise.
const MOST_EXECUTORS: usize = 4096;
/// `aclSysParamOpt`: algorithms that give the same bits each time.
const DETERMINISTIC: i32 = 0;
/// No level has been set yet.
const UNKNOWN: i64 = -1;
/// The most devices whose level is remembered.
const MOST_DEVICES: usize = 64;

/// The libraries, and what is kept of them.
pub(super) struct Library {
    pub(super) base: &'static Base,
    pub(super) runtime: &'static Api,
    pub(super) cache: Cache,
    /// Of each device the level of determinism that was set last.
    levels: [AtomicI64; MOST_DEVICES],
}

/// The libraries, opened once; or why they cannot be used.
pub(super) fn library() -> std::result::Result<&'static Library, &'static str> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    let opened = LIBRARY.get_or_init(|| {
        static BASE: OnceLock<Base> = OnceLock::new();
        let runtime = driver::open().map_err(str::to_owned)?;
        let base = Base::open()?;
        // The core may ask for the kernels before it opens the vendor.
        let most = most_executors(value(EXECUTORS).as_deref())?;
        Ok(Library {
            base: BASE.get_or_init(|| base),
            runtime,
            cache: Cache::new(most),
            levels: [const { AtomicI64::new(UNKNOWN) }; MOST_DEVICES],
        })
    });
    opened.as_ref().map_err(String::as_str)
}

/// The number of executors that the user wants to be kept, from the value of [`EXECUTORS`]. Says what is wrong with it.
pub(crate) fn most_executors(given: Option<&str>) -> std::result::Result<usize, String> {
    match given.map(str::trim) {
        None | Some("") => Ok(MOST_EXECUTORS),
        Some(number) => number.parse().map_err(|_| {
            format!("{EXECUTORS} is `{number}`: a number of executors was expected, such as {MOST_EXECUTORS}, or 0 for none")
        }),
    }
}

impl Library {
    /// Whether batch norm saves the variance of its input, and not the inverse deviation, as its documents say of all
    /// chips before the 950.
    pub(super) fn saves_variance(&self) -> bool {
        static SAVES: OnceLock<bool> = OnceLock::new();
        *SAVES.get_or_init(|| {
            !self
                .runtime
                .chip()
                .is_some_and(|chip| chip.starts_with("Ascend95"))
        })
    }

    /// Lets phase 1 choose kernels that give the same bits each time, or the fastest. The context is current.
    pub(super) fn set_deterministic(&self, stream: &AscendStream, wanted: bool) -> Result<()> {
        let level = i64::from(wanted);
        let Some(known) = self.levels.get(stream.device_index()) else {
            return decline("a device of so high a number");
        };
        let before = known.load(Ordering::Relaxed);
        // Off is how a device begins.
        if before == level || (before == UNKNOWN && !wanted) {
            return Ok(());
        }
        let Some(set) = self.runtime.aclrtCtxSetSysParamOpt else {
            return decline(
                "this CANN has no aclrtCtxSetSysParamOpt, which deterministic algorithms need",
            );
        };
        // SAFETY: an option and its value; the context is current.
        self.runtime.check("aclrtCtxSetSysParamOpt", unsafe {
            set(DETERMINISTIC, level)
        })?;
        known.store(level, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_executors_is_a_number() {
        for (given, most) in [
            (None, Some(4096)),
            (Some(" 12 "), Some(12)),
            (Some(""), Some(4096)),
            (Some("0"), Some(0)),
            (Some("many"), None),
            (Some("-1"), None),
        ] {
            assert_eq!(most_executors(given).ok(), most, "{given:?}");
        }
        let reason = most_executors(Some("many")).expect_err("no number");
        assert!(
            reason.contains("`many`") && reason.contains("4096"),
            "{reason}"
        );
    }
}
