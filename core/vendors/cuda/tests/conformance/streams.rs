//! Work that runs at the same time, and work that must not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flagos_core::ErrorKind;
use flagos_core::runtime::launch_closure;

use crate::{Memory, copy, open, pattern, same};
use flagos_vendor_kit::conformance::Gate;

const LARGE: usize = 64 << 20;

#[test]
fn copies_overlap_a_long_function() {
    let Some(cuda) = open() else { return };
    let vendor = &*cuda.vendor;
    let (from, to) = (pattern(vendor, LARGE, 1), pattern(vendor, LARGE, 2));
    let (one, two) = (Memory::new(vendor, 0, LARGE), Memory::new(vendor, 0, LARGE));
    let (a, b) = (
        vendor.stream(0, 0).expect("a stream"),
        vendor.stream(0, -1).expect("a stream"),
    );
    let gate = Gate::on(&*a).expect("queued");
    // This copy runs beside the other one.
    copy(&*b, one.address(), from.address(), LARGE);
    copy(&*b, to.address(), one.address(), LARGE);
    let start = Instant::now();
    while !b.is_idle() && start.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    let (copied, blocked) = (b.is_idle(), !a.is_idle());
    // These are queued behind the function at once, or the calls would never return.
    let queueing = Instant::now();
    copy(&*a, two.address(), from.address(), LARGE);
    copy(&*a, from.address(), two.address(), LARGE);
    let queueing = queueing.elapsed();
    gate.open();
    a.sync().expect("everything ran");
    b.sync().expect("everything ran");
    crate::say(&format!("queueing behind a function took {queueing:?}"));
    assert!(copied && blocked, "copied: {copied}, blocked: {blocked}");
    assert!(same(&from, &to, LARGE));
}

#[test]
fn events_time_a_copy() {
    let Some(cuda) = open() else { return };
    let vendor = &*cuda.vendor;
    let from = pattern(vendor, LARGE, 3);
    let memory = Memory::new(vendor, 0, LARGE);
    let stream = vendor.stream(0, 0).expect("a stream");
    let [start, end] = [(); 2].map(|()| vendor.event(0, true).expect("an event"));
    copy(&*stream, memory.address(), from.address(), LARGE);
    stream.sync().expect("warm");
    let clock = Instant::now();
    stream.record(&*start).expect("recorded");
    copy(&*stream, memory.address(), from.address(), LARGE);
    stream.record(&*end).expect("recorded");
    end.sync().expect("it ran");
    let host = clock.elapsed().as_secs_f64() * 1e3;
    let device = start.elapsed_ms(&*end).expect("both are timed");
    let rate = LARGE as f64 / device / 1e6;
    crate::say(&format!(
        "{LARGE} bytes in {device:.3} ms ({rate:.1} GB/s), {host:.3} ms seen here"
    ));
    assert!(device > 0.0 && device <= host, "{device} of {host} ms");
}

#[test]
fn four_threads_with_streams_do_not_disturb_each_other() {
    const NBYTES: usize = 256 << 10;
    let Some(cuda) = open() else { return };
    let vendor = &*cuda.vendor;
    let round = |thread: usize| {
        let device = thread % vendor.device_count();
        let streams = [0, -1].map(|priority| vendor.stream(device, priority).expect("a stream"));
        let event = vendor.event(device, false).expect("an event");
        let (from, to) = (pattern(vendor, NBYTES, thread), pattern(vendor, NBYTES, 99));
        let [one, two] = [(); 2].map(|()| Memory::new(vendor, device, NBYTES));
        let calls = Arc::new(AtomicUsize::new(0));
        for turn in 0..100 {
            let [a, b] = [&streams[turn % 2], &streams[1 - turn % 2]];
            // SAFETY: the whole allocation; the copies of the last turn have been waited for.
            unsafe { to.address().write_bytes(0, NBYTES) };
            copy(&**a, one.address(), from.address(), NBYTES);
            copy(&**a, two.address(), one.address(), NBYTES);
            a.record(&*event).expect("recorded");
            b.wait(&*event).expect("queued");
            copy(&**b, to.address(), two.address(), NBYTES);
            let inside = Arc::clone(&calls);
            let count = move || {
                inside.fetch_add(1, Ordering::Relaxed);
            };
            launch_closure(&**b, count).expect("queued");
            b.sync().expect("everything ran");
            assert!(same(&from, &to, NBYTES), "thread {thread}, turn {turn}");
        }
        assert_eq!(calls.load(Ordering::Relaxed), 100);
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || round(thread));
        }
    });
}

#[test]
fn a_stream_of_others_is_used_and_left_alive() {
    const NBYTES: usize = 1 << 20;
    let Some(cuda) = open() else { return };
    let vendor = &*cuda.vendor;
    let theirs = vendor.stream(0, 0).expect("a stream");
    let handle = theirs.native_handle().expect("a CUstream");
    assert!(!handle.is_null());
    let (from, to) = (pattern(vendor, NBYTES, 1), pattern(vendor, NBYTES, 2));
    let memory = Memory::new(vendor, 0, NBYTES);
    for _ in 0..2 {
        // SAFETY: `theirs` lives longer.
        let ours = unsafe { vendor.external_stream(0, handle) }.expect("it is device 0's");
        assert_eq!((ours.device(), ours.native_handle()), (0, Some(handle)));
        let gate = Gate::on(&*theirs).expect("queued");
        copy(&*ours, memory.address(), from.address(), NBYTES);
        assert!(!ours.is_idle(), "it is the same stream");
        drop(gate);
        copy(&*ours, to.address(), memory.address(), NBYTES);
        ours.sync().expect("everything ran");
        assert!(same(&from, &to, NBYTES));
    }
    theirs.sync().expect("it was not destroyed");
    // SAFETY: null is the default stream.
    let default = unsafe { vendor.external_stream(0, std::ptr::null_mut()) }.expect("it exists");
    default.sync().expect("it can be waited for");
    if vendor.device_count() > 1 {
        // SAFETY: `theirs` is alive.
        let refused = unsafe { vendor.external_stream(1, handle) }.err();
        let kind = refused.map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::InvalidArgument));
    }
}

#[test]
fn work_may_free_but_not_call() {
    const NBYTES: usize = 32 << 20;
    let Some(cuda) = open() else { return };
    let vendor = Arc::clone(&cuda.vendor);
    let stream = vendor.stream(0, 0).expect("a stream");
    let (event, other) = (vendor.event(0, false), vendor.stream(0, 0));
    let (event, other) = (event.expect("an event"), other.expect("a stream"));
    stream.record(&*event).expect("recorded");
    stream.sync().expect("it ran");
    let before = vendor.memory(0).expect("it is counted").free;
    let address = vendor.alloc(0, NBYTES).expect("memory").as_ptr() as usize;
    let found = Arc::new(Mutex::new(Vec::new()));
    let (inside, seen, idle) = (
        Arc::clone(&vendor),
        Arc::clone(&found),
        Arc::new(AtomicBool::new(true)),
    );
    let says_idle = Arc::clone(&idle);
    let work = move || {
        let kinds = [
            inside.alloc(0, 1).err(),
            inside.event(0, false).err(),
            event.query().err(),
            other.sync().err(),
            inside.quiesce(0).err(),
            launch_closure(&*other, || {}).err(),
        ];
        let kinds = kinds.map(|error| error.map(|error| error.kind()));
        says_idle.store(other.is_idle(), Ordering::Release);
        // SAFETY: allocated above; nothing uses it.
        unsafe {
            inside.free(
                0,
                std::ptr::NonNull::new(address as *mut u8).expect("not null"),
                NBYTES,
            )
        };
        drop((event, other));
        seen.lock().expect("no panic").extend(kinds);
    };
    launch_closure(&*stream, work).expect("queued");
    stream.sync().expect("it ran");
    assert_eq!(
        *found.lock().expect("no panic"),
        [Some(ErrorKind::Unsupported); 6]
    );
    assert!(!idle.load(Ordering::Acquire), "nothing is known in work");
    vendor.quiesce(0).expect("the device can be waited for");
    let after = vendor.memory(0).expect("it is counted").free;
    assert!(after >= before, "{before} free before, {after} after");
}
