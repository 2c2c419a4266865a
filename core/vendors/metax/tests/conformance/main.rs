//! The suite over MetaX devices, and tests of the vendor `metax` alone.
//!
//! Without a device every test passes and prints `skipped: <reason>`; with `FLAGOS_REQUIRE_METAX=1` it fails instead.
//! `simulated` runs every test again over a simulated runtime. The program needs neither cargo nor MACA's headers, so it
//! can be carried to a machine with a chip, or with a library that forwards to another runtime.

#![cfg(all(unix, not(loom)))]

mod captures;
mod kernels;
#[path = "../../../cuda/tests/conformance/memory.rs"]
mod memory;
mod process;
mod runtime;
mod shared;
mod simulated;
#[path = "../../../cuda/tests/conformance/streams.rs"]
mod streams;
#[path = "../../../kit/testing/mod.rs"]
mod support;

use support::{Memory, Opened, Tested, copy, failures, pattern, same, say, turn};

const TESTED: Tested = Tested::Library {
    name: "metax",
    manifest: include_str!("../../python/flagos_metax/metax.toml"),
};

/// What the error of a full device says: the call, the error, and what to look with.
const OUT_OF_MEMORY: [&str; 3] = ["mcMalloc", "mcErrorMemoryAllocation (2)", "mx-smi"];

fn there_is_a_device() -> bool {
    TESTED.there_is_a_device()
}

fn open() -> Option<Opened> {
    TESTED.open()
}

#[test]
fn the_suite_passes() {
    let Some(metax) = open() else { return };
    assert_eq!(failures("suite", &*metax.vendor), [""; 0]);
}

#[test]
fn what_is_inferred_is_true_here() {
    if !there_is_a_device() {
        return;
    }
    let _turn = turn();
    let library = TESTED.library();
    assert!(!library.declarations().is_empty());
    for (index, (name, grade)) in library.declarations().iter().enumerate() {
        match library.try_declaration(index) {
            Ok(shown) => say(&format!("{name} ({grade}): {shown}")),
            Err(wrong) => panic!("{name}: {wrong}"),
        }
    }
}

#[test]
fn devices_are_those_that_were_counted() {
    let Some(metax) = open() else { return };
    let count = metax.vendor.device_count();
    assert_eq!(Ok(count), TESTED.survey());
    for device in 0..count {
        let properties = metax.vendor.properties(device).expect("it is described");
        say(&format!("device {device}: {properties:?}"));
        assert!(properties.major >= 1, "{properties:?}");
        assert!(properties.multi_processor_count >= 1, "{properties:?}");
    }
}

#[test]
fn memory_goes_from_device_to_device() {
    const NBYTES: usize = 1 << 20;
    let Some(metax) = open() else { return };
    let vendor = &*metax.vendor;
    if vendor.device_count() < 2 {
        return say("skipped: needs two devices");
    }
    let (from, to) = (pattern(vendor, NBYTES, 1), pattern(vendor, NBYTES, 2));
    let [one, two] = [0, 1].map(|device| Memory::new(vendor, device, NBYTES));
    let stream = vendor.stream(0, 0).expect("a stream");
    for _ in 0..2 {
        copy(&*stream, one.address(), from.address(), NBYTES);
        copy(&*stream, two.address(), one.address(), NBYTES);
        copy(&*stream, to.address(), two.address(), NBYTES);
        stream.sync().expect("everything ran");
        assert!(same(&from, &to, NBYTES));
    }
}
