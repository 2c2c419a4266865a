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

use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use flagos_core::runtime::{Stream, Vendor};
use flagos_core::vendors::conformance::{Pinned, CHECKS};
use flagos_core::vendors::library::{self, Library};
use flagos_core::vendors::{cuda, Settings};

/// The vendor, for one test at a time: tests count memory and fill the device.
struct Cuda {
    vendor: Arc<dyn Vendor>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

/// Prints past the test harness, which would swallow the text.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// What the error of a full device says: the call, the error, and what to look with.
const OUT_OF_MEMORY: [&str; 3] = ["cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "nvidia-smi"];

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
    let Err(reason) = (cuda::ENTRY.survey)(&settings()) else {
        return true;
    };
    let required = std::env::var("FLAGOS_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    assert!(!required, "FLAGOS_REQUIRE_CUDA=1, but {reason}");
    say(&format!("skipped: {reason}"));
    false
}

/// The turn of one test.
fn turn() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The vendor, if there is a device.
fn open() -> Option<Cuda> {
    if !there_is_a_device() {
        return None;
    }
    let guard = turn();
    let vendor = (cuda::ENTRY.open)(&settings(), Box::leak(Box::default()))
        .expect("CUDA can be initialised");
    Some(Cuda {
        vendor,
        _one_at_a_time: guard,
    })
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

/// Device memory that is freed when the device has finished with it.
struct Memory<'v> {
    vendor: &'v dyn Vendor,
    device: usize,
    address: std::ptr::NonNull<u8>,
    nbytes: usize,
}

impl<'v> Memory<'v> {
    fn new(vendor: &'v dyn Vendor, device: usize, nbytes: usize) -> Self {
        let address = vendor.alloc(device, nbytes).expect("memory");
        Self {
            vendor,
            device,
            address,
            nbytes,
        }
    }

    fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let quiet = (0..self.vendor.device_count()).all(|d| self.vendor.quiesce(d).is_ok());
        if quiet {
            // SAFETY: from `alloc` with this size, and nothing is queued any more.
            unsafe { self.vendor.free(self.device, self.address, self.nbytes) };
        }
    }
}

fn copy(stream: &dyn Stream, dst: *mut u8, src: *const u8, nbytes: usize) {
    // SAFETY: every caller keeps both ranges until the device has finished.
    unsafe { stream.copy(dst, src, nbytes) }.expect("the copy is queued");
}

/// Pinned memory filled with a pattern of the seed.
fn pattern<'v>(vendor: &'v dyn Vendor, nbytes: usize, seed: usize) -> Pinned<'v> {
    let pinned = Pinned::new(vendor, nbytes).expect("pinned memory");
    // SAFETY: the whole allocation, which nothing else uses yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(pinned.address(), nbytes) };
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = ((index * 31 + seed * 17) % 251) as u8;
    }
    pinned
}

/// Whether two allocations, which nothing writes any more, hold the same bytes.
fn same(a: &Pinned<'_>, b: &Pinned<'_>, nbytes: usize) -> bool {
    // SAFETY: both are at least this large, and the copies to them have been waited for.
    unsafe {
        std::slice::from_raw_parts(a.address(), nbytes)
            == std::slice::from_raw_parts(b.address(), nbytes)
    }
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
    assert_eq!(library.probe().ok(), (cuda::ENTRY.survey)(&settings()).ok());
    let vendor = open_exported();
    assert_eq!(failures("suite of the library", &*vendor), [""; 0]);
    let stream = vendor.stream(0, 0).expect("a stream");
    let handle = stream.native_handle().expect("a CUstream");
    // SAFETY: the handle of a stream that outlives this one.
    let same = unsafe { vendor.external_stream(0, handle) }.expect("a stream");
    assert_eq!(same.native_handle(), Some(handle));
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
fn devices_are_those_that_were_counted() {
    let Some(cuda) = open() else { return };
    let count = cuda.vendor.device_count();
    assert_eq!(Ok(count), (cuda::ENTRY.survey)(&settings()));
    for device in 0..count {
        let properties = cuda.vendor.properties(device).expect("it is described");
        say(&format!("device {device}: {properties:?}"));
        assert!(properties.major >= 3, "{properties:?}");
    }
}
