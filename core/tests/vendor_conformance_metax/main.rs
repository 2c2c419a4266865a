//! The suite over MetaX devices, and tests of the vendor `metax` alone.
//!
//! Without a device every test passes and prints `skipped: <reason>`; with `FLAGOS_REQUIRE_METAX=1` it fails instead.
//! `simulated` runs every test again over a simulated runtime. The program needs neither cargo nor MACA's headers, so it
//! can be carried to a machine with a chip, or with a library that forwards to another runtime.

#![cfg(all(unix, not(loom)))]

mod captures;
mod kernels;
#[path = "../vendor_conformance_cuda/memory.rs"]
mod memory;
mod process;
mod runtime;
mod shared;
mod simulated;
#[path = "../vendor_conformance_cuda/streams.rs"]
mod streams;

use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flagos_core::runtime::{Stream, Vendor};
use flagos_core::vendors::conformance::{Pinned, CHECKS};
use flagos_core::vendors::{metax, Settings};

/// The vendor, for one test at a time: tests count memory and fill the device.
struct Metax {
    vendor: Arc<dyn Vendor>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

/// Prints past the test harness, which would swallow the text.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

const VISIBLE: &str = "MACA_VISIBLE_DEVICES";

/// What the error of a full device says: the call, the error, and what to look with.
const OUT_OF_MEMORY: [&str; 3] = ["mcMalloc", "mcErrorMemoryAllocation (2)", "mx-smi"];

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
    let Err(reason) = (metax::ENTRY.survey)(&settings()) else {
        return true;
    };
    let required = std::env::var("FLAGOS_REQUIRE_METAX").is_ok_and(|value| value == "1");
    assert!(!required, "FLAGOS_REQUIRE_METAX=1, but {reason}");
    say(&format!("skipped: {reason}"));
    false
}

/// The turn of one test.
fn turn() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The vendor, if there is a device.
fn open() -> Option<Metax> {
    if !there_is_a_device() {
        return None;
    }
    let guard = turn();
    let vendor = (metax::ENTRY.open)(&settings(), Box::leak(Box::default()))
        .expect("the runtime can be initialised");
    Some(Metax {
        vendor,
        _one_at_a_time: guard,
    })
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
    let Some(metax) = open() else { return };
    let run = CHECKS.iter().filter_map(|check| {
        say(&format!("suite: {}", check.name));
        let finding = check.run(&*metax.vendor, Duration::from_millis(30)).err()?;
        Some(format!("{}: {finding}", check.name))
    });
    assert_eq!(run.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn what_is_inferred_is_true_here() {
    if !there_is_a_device() {
        return;
    }
    let _turn = turn();
    assert!(!metax::ENTRY.declarations.is_empty());
    for declaration in metax::ENTRY.declarations {
        match (declaration.run)() {
            Ok(shown) => say(&format!(
                "{} ({}): {shown}",
                declaration.name, declaration.grade
            )),
            Err(wrong) => panic!("{}: {wrong}", declaration.name),
        }
    }
}

#[test]
fn devices_are_those_that_were_counted() {
    let Some(metax) = open() else { return };
    let count = metax.vendor.device_count();
    assert_eq!(Ok(count), (metax::ENTRY.survey)(&settings()));
    for device in 0..count {
        let properties = metax.vendor.properties(device).expect("it is described");
        say(&format!("device {device}: {properties:?}"));
        assert!(properties.major >= 1, "{properties:?}");
        assert!(properties.multi_processor_count >= 1, "{properties:?}");
        if device == 0 {
            assert_eq!((metax::ENTRY.product_name)(), Some(properties.name));
        }
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
