//! Streams, events and functions of the host.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flagos_core::ErrorKind;
use flagos_core::runtime::launch_closure;
use flagos_vendor_kit::conformance::Gate;

use crate::open;

#[test]
fn no_stream_is_the_null_stream() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    for device in 0..vendor.device_count() {
        let default = vendor.default_stream(device).expect("a stream");
        let handle = default.native_handle().expect("an aclrtStream");
        assert!(!handle.is_null());
        // SAFETY: null is the default stream.
        let same = unsafe { vendor.external_stream(device, null_mut()) }.expect("a stream");
        assert_eq!(same.native_handle(), Some(handle));
    }
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    if vendor.device_count() < 2 {
        return crate::say("skipped: one device");
    }
    let stream = vendor.stream(0, 0).expect("a stream");
    let handle = stream.native_handle().expect("an aclrtStream");
    // SAFETY: the handle of a stream that outlives the call.
    let error = unsafe { vendor.external_stream(1, handle) }.err();
    let error = error.expect("it is device 0's");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let event = vendor.event(1, false).expect("an event");
    let error = stream.record(&*event).expect_err("it is device 1's");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn every_thread_may_use_every_device() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let count = vendor.device_count();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for turn in 0..20 {
                    let device = (thread + turn) % count;
                    let stream = vendor.stream(device, -1).expect("a stream");
                    let event = vendor.event(device, turn % 2 == 0).expect("an event");
                    stream.record(&*event).expect("recorded");
                    event.sync().expect("it ran");
                    assert!(event.query().expect("finished"));
                }
            });
        }
    });
}

#[test]
fn functions_of_many_streams_are_all_called() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let called = Arc::new(AtomicUsize::new(0));
    let streams: Vec<_> = (0..8)
        .map(|_| vendor.stream(0, 0).expect("a stream"))
        .collect();
    for _ in 0..50 {
        for stream in &streams {
            let called = Arc::clone(&called);
            let work = move || {
                called.fetch_add(1, Ordering::Release);
            };
            launch_closure(&**stream, work).expect("queued");
        }
    }
    drop(streams);
    vendor.device_sync(0).expect("nothing has failed");
    assert_eq!(called.load(Ordering::Acquire), 400);
}

#[test]
fn work_on_a_stream_cannot_call_the_runtime() {
    let Some(ascend) = open() else { return };
    let vendor = Arc::clone(&ascend.vendor);
    let stream = vendor.stream(0, 0).expect("a stream");
    let other = vendor.stream(0, 0).expect("a stream");
    let event = vendor.event(0, false).expect("an event");
    let (tell, told) = std::sync::mpsc::channel();
    let inside = Arc::clone(&vendor);
    let work = move || {
        let refused = [
            inside.alloc(0, 1).err(),
            inside.stream(0, 0).err(),
            inside.device_sync(0).err(),
            inside.quiesce(0).err(),
            other.sync().err(),
            other.record(&*event).err(),
        ];
        // Dropping is allowed: the vendor does it later.
        drop((other, event));
        let _ = tell.send(refused.map(|error| error.map(|error| error.kind())));
    };
    launch_closure(&*stream, work).expect("queued");
    stream.sync().expect("it ran");
    let kinds = told.recv().expect("it was called");
    assert_eq!(kinds, [Some(ErrorKind::Unsupported); 6]);
    vendor.device_sync(0).expect("nothing has failed");
}

#[test]
fn an_event_that_is_used_again_has_not_been_recorded() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let stream = vendor.stream(0, 0).expect("a stream");
    let gate = Gate::on(&*stream).expect("work");
    for timing in [false, true] {
        let first = vendor.event(0, timing).expect("an event");
        stream.record(&*first).expect("recorded");
        drop(first);
        let second = vendor.event(0, timing).expect("an event");
        assert!(
            second.query().expect("never recorded"),
            "a new event is finished"
        );
        second.sync().expect("and is not waited for");
    }
    gate.open();
    stream.sync().expect("it ran");
}
