//! The suite over the host vendor, and over vendors with a flaw that it must notice.

#![cfg(not(loom))]

mod broken;

use std::sync::Arc;
use std::time::Duration;

use flagos_core::env::{FaultSite, HostSettings};
use flagos_core::runtime::Vendor;
use flagos_core::vendors::host::HostVendor;
use flagos_core::vendors::{Settings, VendorEntry as _, built_in};
use flagos_vendor_kit::conformance::failures;

use broken::{Broken, FLAWS, Flaw, outcome};

#[test]
fn the_host_conforms() {
    let delayed = HostSettings {
        delay_us: Some(300),
        seed: Some(1),
        ..Default::default()
    };
    let two = HostSettings {
        devices: Some(2),
        memory: Some(256 << 20),
        ..Default::default()
    };
    for host in [HostSettings::default(), two, delayed] {
        // The vendors of a chip have tests of their own, in crates of their own.
        let settings = Settings {
            host,
            ..Settings::default()
        };
        for entry in built_in().filter(|e| e.name() == "host") {
            let vendor = entry
                .open(&settings, Box::leak(Box::default()))
                .expect("it opens");
            assert_eq!(Ok(vendor.device_count()), entry.survey(&settings));
            let failed = failures(&*vendor, Duration::from_millis(30));
            assert!(
                failed.is_empty(),
                "{} {settings:?}: {failed:#?}",
                entry.name()
            );
        }
    }
}

#[test]
fn a_wrapped_vendor_conforms() {
    let failed = failures(
        &Broken::new(Flaw::None, Box::leak(Box::default())),
        Duration::from_millis(30),
    );
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn every_flaw_is_noticed() {
    for (flaw, check) in FLAWS {
        let vendor = Broken::new(flaw, Box::leak(Box::default()));
        let outcome = outcome(check, &vendor);
        assert!(outcome.is_err(), "`{check}` does not notice {flaw:?}");
    }
}

/// The outcomes of fifty rounds of calls, each with that of the next sync.
fn trace(settings: &HostSettings) -> Vec<String> {
    let vendor = HostVendor::new(settings, Box::leak(Box::default()));
    let stream = vendor.stream(0, 0).expect("a stream");
    let event = vendor.event(0, false).expect("an event");
    let mut bytes = [0_u8; 2];
    let [to, from] = [0, 1].map(|i| bytes.as_mut_ptr().wrapping_add(i));
    let mut trace = Vec::new();
    for _ in 0..50 {
        // SAFETY: `bytes` lives until the sync below.
        let copied = unsafe { stream.copy(to, from, 1) };
        trace.push(format!(
            "{copied:?} {:?} {:?}",
            stream.sync(),
            stream.record(&*event)
        ));
        let memory = vendor.alloc(0, 4096);
        trace.push(format!("{:?}", memory.as_ref().map(|_| ())));
        if let Ok(memory) = memory {
            // SAFETY: just allocated, unused.
            unsafe { vendor.free(0, memory, 4096) };
        }
        let launched = flagos_core::runtime::launch_closure(&*stream, || {});
        trace.push(format!("{launched:?} {:?}", stream.sync()));
    }
    trace
}

#[test]
fn the_seed_decides_which_calls_fail() {
    let settings = |seed| HostSettings {
        seed: Some(seed),
        delay_us: Some(50),
        faults: FaultSite::ALL.map(|site| (site, 0.3)).to_vec(),
        ..Default::default()
    };
    let first = trace(&settings(1));
    assert_eq!(first, trace(&settings(1)));
    assert_ne!(first, trace(&settings(2)));
    for site in ["copy", "alloc", "event", "launch"] {
        let injected = format!("injected failure of {site}");
        assert!(first.iter().any(|line| line.contains(&injected)), "{site}");
    }
    let quiet = trace(&HostSettings {
        delay_us: Some(50),
        ..Default::default()
    });
    assert!(!quiet.iter().any(|line| line.contains("injected")));
}

#[test]
fn a_failed_copy_is_reported_once_and_follows_events() {
    let settings = HostSettings {
        faults: vec![(FaultSite::Copy, 1.0)],
        ..Default::default()
    };
    let vendor = HostVendor::new(&settings, Box::leak(Box::default()));
    let (a, b) = (
        vendor.stream(0, 0).expect("a stream"),
        vendor.stream(0, 0).expect("another"),
    );
    let event = vendor.event(0, false).expect("an event");
    let mut bytes = [7_u8, 8];
    let [to, from] = [0, 1].map(|i| bytes.as_mut_ptr().wrapping_add(i));
    // SAFETY: `bytes` lives until the device is synchronised.
    unsafe { a.copy(to, from, 1) }.expect("queued");
    let ran = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let inside = Arc::clone(&ran);
    let work = move || inside.store(true, std::sync::atomic::Ordering::Release);
    flagos_core::runtime::launch_closure(&*a, work).expect("queued");
    a.record(&*event).expect("recorded");
    b.wait(&*event).expect("queued");
    assert!(event.sync().is_err(), "the event knows");
    assert!(b.sync().is_err(), "the failure travels with the event");
    assert!(b.sync().is_ok(), "once");
    vendor.quiesce(0).expect("quiesce reports nothing");
    assert!(a.query().is_ok(), "the event has told of it");
    assert!(
        ran.load(std::sync::atomic::Ordering::Acquire),
        "later work runs"
    );
    assert_eq!(bytes, [7, 8], "the copy did not happen");
    // SAFETY: as above.
    unsafe { a.copy(to, from, 1) }.expect("queued");
    assert!(vendor.device_sync(0).is_err(), "the device knows");
    assert!(vendor.device_sync(0).is_ok(), "once");
}
