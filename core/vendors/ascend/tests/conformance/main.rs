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

use std::sync::OnceLock;

use flagos_ascend as ascend;
use flagos_core::runtime::Vendor;
use flagos_core::vendors::library::{self, Library};
use flagos_core::vendors::Settings;

use support::{bytes, copy, failures, fill, say, turn, Opened, Tested};

const TESTED: Tested = Tested {
    entry: &ascend::ENTRY,
    visible: "ASCEND_RT_VISIBLE_DEVICES",
};

fn settings() -> Settings {
    TESTED.settings()
}

fn there_is_a_device() -> bool {
    TESTED.there_is_a_device()
}

fn open() -> Option<Opened> {
    TESTED.open()
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
    let built_in = (ascend::ENTRY.open)(&settings(), Box::leak(Box::default())).expect("it opens");
    assert_eq!(vendor.padding(), built_in.padding());
    let devices = 0..vendor.device_count();
    for (device, peer) in devices
        .clone()
        .flat_map(|d| devices.clone().map(move |p| (d, p)))
    {
        let reaches = |vendor: &dyn Vendor| vendor.reaches(device, peer).expect("a number");
        assert_eq!(reaches(&*vendor), reaches(&*built_in));
    }
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
