//! The host's struct for a library: its versions, and the log.

use std::ffi::c_char;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::text;
use super::types::*;

/// The major versions that this host takes, from the oldest to the newest.
pub(super) const MAJORS: RangeInclusive<u32> = FLAGOS_VENDOR_MAJOR..=FLAGOS_VENDOR_MAJOR;

/// Whether this host takes libraries of this major version of `flagos_vendor.h`.
pub fn takes(major: u32) -> bool {
    MAJORS.contains(&major)
}

/// The versions of `flagos_vendor.h` that this host takes, for people.
pub fn versions_taken() -> String {
    format!("{}.x", MAJORS.end())
}

/// Whether lines of libraries are dropped.
static MUTE: AtomicBool = AtomicBool::new(false);

/// Drops all lines of libraries from now on: for a forked child, where the log may be locked for ever.
pub(crate) fn mute() {
    MUTE.store(true, Ordering::Relaxed);
}

/// [`FlagosVendorHost`], shared by all threads.
pub(super) struct Host(FlagosVendorHost);

// SAFETY: nobody writes it, and its pointers are NULL.
unsafe impl Sync for Host {}

impl Host {
    /// The host's struct for an interface of which it takes these versions.
    pub(super) const fn new(majors: RangeInclusive<u32>, newest_minor: u32) -> Self {
        Self(FlagosVendorHost {
            struct_size: std::mem::size_of::<FlagosVendorHost>(),
            oldest_major: *majors.start(),
            newest_major: *majors.end(),
            newest_minor,
            reserved_word: 0,
            log: Some(log),
            reserved: [std::ptr::null(); 8],
        })
    }

    /// The struct, for an entry function.
    pub(super) fn address(&'static self) -> *const FlagosVendorHost {
        &self.0
    }
}

/// The host's struct for `flagos_vendor`.
pub(super) static HOST: Host = Host::new(MAJORS, FLAGOS_VENDOR_MINOR);

/// [`FlagosVendorHost::log`]. A panic of the log's subscriber does not reach the library.
///
/// # Safety
/// As [`text::read`].
unsafe extern "C" fn log(level: i32, line: *const c_char) {
    if MUTE.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the caller's promise.
    let Some(line) = (unsafe { text::read_lossy(line) }) else {
        return;
    };
    let write = || match level {
        FLAGOS_VENDOR_LOG_ERROR => tracing::error!("{line}"),
        FLAGOS_VENDOR_LOG_WARNING => tracing::warn!("{line}"),
        FLAGOS_VENDOR_LOG_INFO => tracing::info!("{line}"),
        _ => tracing::debug!("{line}"),
    };
    drop(catch_unwind(AssertUnwindSafe(write)));
}
