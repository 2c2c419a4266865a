//! The vendor leaves a thread's current context as it was.

use std::ptr::null_mut;

use crate::driver::driver;
use crate::{Memory, open, pattern, same};

const NBYTES: usize = 4096;

/// A round trip through the memory of each device.
fn use_every_device(vendor: &dyn flagos_core::runtime::Vendor) {
    for device in 0..vendor.device_count() {
        let (from, to) = (pattern(vendor, NBYTES, 1), pattern(vendor, NBYTES, 2));
        let memory = Memory::new(vendor, device, NBYTES);
        let stream = vendor.stream(device, 0).expect("a stream");
        crate::copy(&*stream, memory.address(), from.address(), NBYTES);
        crate::copy(&*stream, to.address(), memory.address(), NBYTES);
        stream.sync().expect("both ran");
        assert!(same(&from, &to, NBYTES), "device {device}");
    }
}

#[test]
fn what_was_current_is_current_again() {
    let Some(cuda) = open() else { return };
    let driver = driver();
    use_every_device(&*cuda.vendor);
    let primary = driver.current();
    assert!(!primary.is_null(), "device 0's stays with the thread");
    use_every_device(&*cuda.vendor);
    assert_eq!(driver.current(), primary);
    // A context that is not a primary one, as some libraries create.
    let mut foreign = null_mut();
    // SAFETY: a valid output; device 0 exists.
    assert_eq!(unsafe { (driver.create)(&mut foreign, 0, 0) }, 0);
    assert_ne!(foreign, primary);
    use_every_device(&*cuda.vendor);
    assert_eq!(driver.current(), foreign);
    driver.make_current(null_mut());
    use_every_device(&*cuda.vendor);
    driver.make_current(primary);
    // SAFETY: made above and not current.
    assert_eq!(unsafe { (driver.destroy)(foreign) }, 0);
}

#[test]
fn a_thread_without_a_context_gets_one() {
    let Some(cuda) = open() else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(driver().current().is_null(), "a new thread has none");
            use_every_device(&*cuda.vendor);
        });
    });
}

#[test]
fn devices_copy_to_each_other() {
    const NBYTES: usize = 8 << 20;
    let Some(cuda) = open() else { return };
    let vendor = &*cuda.vendor;
    if vendor.device_count() < 2 {
        return crate::say("skipped: one device has no peer");
    }
    let (from, to) = (pattern(vendor, NBYTES, 3), pattern(vendor, NBYTES, 4));
    let (a, b) = (
        Memory::new(vendor, 0, NBYTES),
        Memory::new(vendor, 1, NBYTES),
    );
    for [first, second] in [[&a, &b], [&b, &a]] {
        let streams = [first, second].map(|memory| vendor.stream(memory.device, 0));
        let [here, there] = streams.map(|stream| stream.expect("a stream"));
        let event = vendor.event(first.device, false).expect("an event");
        // SAFETY: the whole allocation; nothing is queued for it.
        unsafe { to.address().write_bytes(0, NBYTES) };
        crate::copy(&*here, first.address(), from.address(), NBYTES);
        // The first copy arranges access, the second finds it arranged.
        for _ in 0..2 {
            crate::copy(&*here, second.address(), first.address(), NBYTES);
        }
        here.record(&*event).expect("recorded");
        there.wait(&*event).expect("a wait across devices");
        crate::copy(&*there, to.address(), second.address(), NBYTES);
        there.sync().expect("everything ran");
        assert!(same(&from, &to, NBYTES));
        let refused = there.record(&*event).expect_err("another device's event");
        assert_eq!(refused.kind(), flagos_core::ErrorKind::InvalidArgument);
    }
}
