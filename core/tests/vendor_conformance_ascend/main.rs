//! The suite over Ascend devices, and tests of the vendor `ascend` alone.
//!
//! Without a device every test passes and prints `skipped: <reason>`; with `FLAGOS_REQUIRE_ASCEND=1` it fails instead.
//! `simulated` runs every test again over a simulated runtime. The program needs neither cargo nor CANN's headers, so it
//! can be carried to a machine with a chip.

#![cfg(all(unix, not(loom)))]

mod captures;
mod faults;
mod memory;
mod process;
mod shared;
mod simulated;
mod streams;

use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use flagos_core::runtime::{Stream, Vendor};
use flagos_core::vendors::conformance::{Pinned, CHECKS};
use flagos_core::vendors::library::{self, Library};
use flagos_core::vendors::{ascend, Settings};

/// The vendor, for one test at a time: tests count memory and fill the device.
struct Ascend {
    vendor: Arc<dyn Vendor>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

/// Prints past the test harness, which would swallow the text.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

const VISIBLE: &str = "ASCEND_RT_VISIBLE_DEVICES";

fn settings() -> Settings {
    Settings {
        variables: std::env::var(VISIBLE)
            .map(|devices| (VISIBLE.to_owned(), devices))
            .into_iter()
            .collect(),
        ..Settings::default()
    }
}

/// Whether there is a device. If not, the test is skipped, or fails where one is required.
fn there_is_a_device() -> bool {
    let Err(reason) = (ascend::ENTRY.survey)(&settings()) else {
        return true;
    };
    let required = std::env::var("FLAGOS_REQUIRE_ASCEND").is_ok_and(|value| value == "1");
    assert!(!required, "FLAGOS_REQUIRE_ASCEND=1, but {reason}");
    say(&format!("skipped: {reason}"));
    false
}

/// The turn of one test.
fn turn() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The vendor, if there is a device.
fn open() -> Option<Ascend> {
    if !there_is_a_device() {
        return None;
    }
    let guard = turn();
    let vendor = (ascend::ENTRY.open)(&settings(), Box::leak(Box::default()))
        .expect("the runtime can be initialised");
    Some(Ascend {
        vendor,
        _one_at_a_time: guard,
    })
}

/// The vendor exported as a table of `flagos_vendor.h`. The library lies beside this program.
fn exported() -> &'static Library {
    static LIBRARY: OnceLock<&Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let program = std::env::current_exe().expect("this program");
        let library = Library::load(&program.with_file_name("libflagos_exported_ascend.so"));
        library.expect("it was built, and carried, with this program")
    })
}

fn copy(stream: &dyn Stream, dst: *mut u8, src: *const u8, nbytes: usize) {
    // SAFETY: every caller keeps both ranges until the device has finished.
    unsafe { stream.copy(dst, src, nbytes) }.expect("the copy is queued");
}

/// A pattern of the seed.
fn fill(bytes: &mut [u8], seed: usize) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = ((index * 31 + seed * 17) % 251) as u8;
    }
}

/// The bytes of pinned memory that no queued copy writes any more.
fn bytes<'p>(pinned: &'p mut Pinned<'_>, nbytes: usize) -> &'p mut [u8] {
    // SAFETY: at least this large, borrowed alone, and the copies to it have been waited for.
    unsafe { std::slice::from_raw_parts_mut(pinned.address(), nbytes) }
}

/// Runs the suite, naming each check as it runs. Returns what failed.
fn failures(of: &str, vendor: &dyn Vendor) -> Vec<String> {
    let run = CHECKS.iter().filter_map(|check| {
        say(&format!("{of}: {}", check.name));
        let finding = check.run(vendor, Duration::from_millis(30)).err()?;
        Some(format!("{}: {finding}", check.name))
    });
    run.collect()
}

#[test]
fn the_suite_passes() {
    let Some(ascend) = open() else { return };
    assert_eq!(failures("suite", &*ascend.vendor), [""; 0]);
}

#[test]
fn the_suite_passes_as_a_library() {
    if !there_is_a_device() {
        return;
    }
    let _turn = turn();
    let library = exported();
    let described = (ascend::ENTRY.description)();
    assert_eq!(library.description().variables, described.variables);
    assert_eq!(library.description().device_lost, described.device_lost);
    assert_eq!(
        library.probe().ok(),
        (ascend::ENTRY.survey)(&settings()).ok()
    );
    let vendor = library::open(library, Box::leak(Box::default())).expect("it opens");
    assert_eq!(failures("suite of the library", &*vendor), [""; 0]);
    let stream = vendor.stream(0, 0).expect("a stream");
    let handle = stream.native_handle().expect("an aclrtStream");
    // SAFETY: the handle of a stream that outlives this one.
    let same = unsafe { vendor.external_stream(0, handle) }.expect("a stream");
    assert_eq!(same.native_handle(), Some(handle));
}

#[test]
fn devices_are_those_that_were_counted() {
    let Some(ascend) = open() else { return };
    let count = ascend.vendor.device_count();
    assert_eq!(Ok(count), (ascend::ENTRY.survey)(&settings()));
    for device in 0..count {
        let properties = ascend.vendor.properties(device).expect("it is described");
        say(&format!("device {device}: {properties:?}"));
        assert!(properties.name.starts_with("Ascend"), "{properties:?}");
    }
}
