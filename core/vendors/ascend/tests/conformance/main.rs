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
#[path = "../../../kit/testing/mod.rs"]
mod support;

use support::{Opened, Tested, bytes, copy, failures, fill, say};

const TESTED: Tested = Tested::Library {
    name: "ascend",
    manifest: include_str!("../../python/flagos_ascend/ascend.toml"),
};

fn open() -> Option<Opened> {
    TESTED.open()
}

#[test]
fn the_suite_passes() {
    let Some(ascend) = open() else { return };
    assert_eq!(failures("suite", &*ascend.vendor), [""; 0]);
}

#[test]
fn a_streams_handle_is_taken_back() {
    let Some(ascend) = open() else { return };
    let stream = ascend.vendor.stream(0, 0).expect("a stream");
    let handle = stream.native_handle().expect("an aclrtStream");
    // SAFETY: the handle of a stream that outlives this one.
    let same = unsafe { ascend.vendor.external_stream(0, handle) }.expect("a stream");
    assert_eq!(same.native_handle(), Some(handle));
}

#[test]
fn devices_are_those_that_were_counted() {
    let Some(ascend) = open() else { return };
    let count = ascend.vendor.device_count();
    assert_eq!(Ok(count), TESTED.survey());
    for device in 0..count {
        let properties = ascend.vendor.properties(device).expect("it is described");
        say(&format!("device {device}: {properties:?}"));
        assert!(properties.name.starts_with("Ascend"), "{properties:?}");
    }
}
