//! Copies between every two kinds of memory, and memory that the device still uses.

use std::ptr::NonNull;

use flagos_core::runtime::Vendor;
use flagos_vendor_kit::conformance::{Gate, Pinned};

use crate::{bytes, copy, fill, open};

const NBYTES: usize = (1 << 20) + 13;

/// Device memory for the time of a call.
fn with_memory<R>(vendor: &dyn Vendor, device: usize, run: impl FnOnce(NonNull<u8>) -> R) -> R {
    let address = vendor.alloc(device, NBYTES).expect("memory");
    let result = run(address);
    vendor.quiesce(device).expect("the device waits");
    // SAFETY: from `alloc` with this size, and nothing is queued any more.
    unsafe { vendor.free(device, address, NBYTES) };
    result
}

#[test]
fn ordinary_memory_is_copied_before_the_call_returns() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let stream = vendor.stream(0, 0).expect("a stream");
    with_memory(vendor, 0, |there| {
        let mut from = vec![0; NBYTES];
        fill(&mut from, 1);
        copy(&*stream, there.as_ptr(), from.as_ptr(), NBYTES);
        let wanted = from.clone();
        // The copy is over, so that this changes nothing.
        from.fill(0);
        let mut to = vec![0; NBYTES];
        copy(&*stream, to.as_mut_ptr(), there.as_ptr(), NBYTES);
        assert!(to == wanted, "after the call the bytes are there");
    });
}

#[test]
fn copies_on_the_host_follow_the_stream() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let stream = vendor.stream(0, 0).expect("a stream");
    let mut from = vec![0; NBYTES];
    fill(&mut from, 2);
    with_memory(vendor, 0, |there| {
        let mut pinned = Pinned::new(vendor, NBYTES).expect("pinned memory");
        copy(&*stream, there.as_ptr(), from.as_ptr(), NBYTES);
        copy(&*stream, pinned.address(), there.as_ptr(), NBYTES);
        // The bytes come from the copy before, which may not have run yet.
        let mut to = vec![0; NBYTES];
        copy(&*stream, to.as_mut_ptr(), pinned.address(), NBYTES);
        assert!(to == from);
        assert!(bytes(&mut pinned, NBYTES) == from);
    });
}

#[test]
fn copies_between_devices_arrive() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    if vendor.device_count() < 2 {
        return crate::say("skipped: one device");
    }
    let mut from = vec![0; NBYTES];
    fill(&mut from, 3);
    with_memory(vendor, 0, |first| {
        with_memory(vendor, 1, |second| {
            let streams = [0, 1].map(|device| vendor.stream(device, 0).expect("a stream"));
            copy(&*streams[0], first.as_ptr(), from.as_ptr(), NBYTES);
            let event = vendor.event(0, false).expect("an event");
            streams[0].record(&*event).expect("recorded");
            streams[1]
                .wait(&*event)
                .expect("an event of another device");
            copy(&*streams[1], second.as_ptr(), first.as_ptr(), NBYTES);
            let mut to = vec![0; NBYTES];
            copy(&*streams[1], to.as_mut_ptr(), second.as_ptr(), NBYTES);
            assert!(to == from);
        });
    });
}

#[test]
fn memory_is_freed_after_the_work_that_uses_it() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let stream = vendor.stream(0, 0).expect("a stream");
    let pinned = Pinned::new(vendor, NBYTES).expect("pinned memory");
    let address = vendor.alloc(0, NBYTES).expect("memory");
    let gate = Gate::on(&*stream).expect("work");
    copy(&*stream, address.as_ptr(), pinned.address(), NBYTES);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(30));
            gate.open();
        });
        // SAFETY: the vendor waits for the device before the memory goes, as its runtime does not.
        unsafe { vendor.free(0, address, NBYTES) };
        assert!(stream.is_idle(), "freed while a queued copy uses it");
    });
    vendor.device_sync(0).expect("nothing has failed");
}
