//! What the vendor says of captures, which are other libraries', and leaves of its own calls.

use flagos_core::ErrorKind;

use crate::open;
use crate::runtime::runtime;

#[test]
fn a_capture_of_others_is_seen() {
    let Some(metax) = open() else { return };
    let vendor = &*metax.vendor;
    runtime().set_device(0);
    let handle = runtime().stream();
    // SAFETY: the handle lives longer.
    let stream = unsafe { vendor.external_stream(0, handle) }.expect("it is device 0's");
    let other = vendor.stream(0, 0).expect("a stream");
    assert_eq!(stream.capture().expect("it is known"), None);
    let [during, beside] =
        runtime().while_capturing(handle, || [stream.capture(), other.capture()]);
    let during = during.expect("it is known").expect("it is captured");
    assert!(during.valid && during.id != 0, "{during:?}");
    assert_eq!(beside.expect("it is known"), None);
    assert_eq!(stream.capture().expect("it is known"), None);
    drop(stream);
    runtime().destroy(handle);
}

#[test]
fn the_core_captures_nothing() {
    let Some(metax) = open() else { return };
    let refused = metax.vendor.captures().expect_err("torch captures");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_failure_is_not_left_for_other_libraries() {
    let Some(metax) = open() else { return };
    let vendor = &*metax.vendor;
    let total = vendor.memory(0).expect("it is counted").total as usize;
    vendor.alloc(0, total).expect_err("some of it is in use");
    assert_eq!(runtime().last_error(), 0);
    let stream = vendor.stream(0, 0).expect("a stream");
    let [start, end] = [(); 2].map(|()| vendor.event(0, true).expect("an event"));
    stream.record(&*start).expect("recorded");
    let gate = flagos_vendor_kit::conformance::Gate::on(&*stream).expect("queued");
    stream.record(&*end).expect("recorded");
    assert!(!stream.query().expect("it runs"));
    assert!(!end.query().expect("it runs"));
    start.elapsed_ms(&*end).expect_err("it runs");
    assert_eq!(runtime().last_error(), 0, "work that runs is no failure");
    gate.open();
    stream.sync().expect("it ran");
}

#[test]
fn the_current_device_stays_that_of_the_thread() {
    let Some(metax) = open() else { return };
    let vendor = &*metax.vendor;
    if vendor.device_count() < 2 {
        return crate::say("skipped: needs two devices");
    }
    for device in [1, 0] {
        runtime().set_device(device);
        for used in [0, 1] {
            let stream = vendor.stream(used, -1).expect("a stream");
            let event = vendor.event(used, true).expect("an event");
            stream.record(&*event).expect("recorded");
            stream.sync().expect("it ran");
            vendor.device_sync(used).expect("it ran");
            assert_eq!(runtime().device(), device);
        }
        assert_eq!(runtime().device(), device, "also after drops");
    }
}
