//! The host's struct for a library: its versions, and the log.

use std::ffi::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};

use super::text;
use super::types::*;

/// The major versions that this host takes, from the oldest to the newest.
pub(super) const MAJORS: std::ops::RangeInclusive<u32> = FLAGOS_VENDOR_MAJOR..=FLAGOS_VENDOR_MAJOR;

/// [`FlagosVendorHost`], shared by all threads.
struct Shared(FlagosVendorHost);

// SAFETY: nobody writes it, and its pointers are NULL.
unsafe impl Sync for Shared {}

static HOST: Shared = Shared(FlagosVendorHost {
    struct_size: std::mem::size_of::<FlagosVendorHost>(),
    oldest_major: *MAJORS.start(),
    newest_major: *MAJORS.end(),
    newest_minor: FLAGOS_VENDOR_MINOR,
    reserved_word: 0,
    log: Some(log),
    reserved: [std::ptr::null(); 8],
});

/// The host's struct, for entry functions.
pub(super) fn host() -> *const FlagosVendorHost {
    &HOST.0
}

/// [`FlagosVendorHost::log`]. A panic of the log's subscriber does not reach the library.
///
/// # Safety
/// As [`text::read`].
unsafe extern "C" fn log(level: i32, line: *const c_char) {
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
