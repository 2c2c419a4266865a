//! The suite over NVIDIA devices, and tests of the vendor `cuda` alone.
//!
//! Without a device every test passes and prints `skipped: <reason>`; with `FLAGOS_REQUIRE_CUDA=1` it
//! fails instead. The program needs neither cargo nor a CUDA toolkit, so it can be carried to a
//! machine that has only the driver.

#![cfg(all(unix, not(loom)))]

mod contexts;
mod driver;
mod kernels;
mod launch;
mod memory;
mod process;
mod simulated;
mod streams;
#[path = "../../../kit/testing/mod.rs"]
mod support;

use std::sync::{Arc, OnceLock};

use flagos_core::runtime::Vendor;
use flagos_core::vendors::library::{self, Library};
use flagos_cuda as cuda;

use support::{Memory, Opened, Tested, copy, failures, pattern, same, say, turn};

const TESTED: Tested = Tested::Linked(&cuda::ENTRY);

/// What the error of a full device says: the call, the error, and what to look with.
const OUT_OF_MEMORY: [&str; 3] = ["cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "nvidia-smi"];

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
        let library = Library::load(&program.with_file_name("libflagos_exported_cuda.so"));
        library.expect("it was built, and carried, with this program")
    })
}

/// The exported vendor.
fn open_exported() -> Arc<dyn Vendor> {
    library::open(exported(), Box::leak(Box::default())).expect("CUDA can be initialised")
}

#[test]
fn the_suite_passes() {
    let Some(cuda) = open() else { return };
    assert_eq!(failures("suite", &*cuda.vendor), [""; 0]);
}

#[test]
fn the_suite_passes_as_a_library() {
    if !there_is_a_device() {
        return;
    }
    let _turn = turn();
    let library = exported();
    assert_eq!(library.description(), (cuda::ENTRY.description)());
    assert_eq!(library.probe().ok(), TESTED.survey().ok());
    let vendor = open_exported();
    assert_eq!(failures("suite of the library", &*vendor), [""; 0]);
    let stream = vendor.stream(0, 0).expect("a stream");
    let handle = stream.native_handle().expect("a CUstream");
    // SAFETY: the handle of a stream that outlives this one.
    let same = unsafe { vendor.external_stream(0, handle) }.expect("a stream");
    assert_eq!(same.native_handle(), Some(handle));
}

#[test]
fn devices_are_those_that_were_counted() {
    let Some(cuda) = open() else { return };
    let count = cuda.vendor.device_count();
    assert_eq!(Ok(count), TESTED.survey());
    for device in 0..count {
        let properties = cuda.vendor.properties(device).expect("it is described");
        say(&format!("device {device}: {properties:?}"));
        assert!(properties.major >= 3, "{properties:?}");
    }
}
