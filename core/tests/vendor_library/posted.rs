//! Parts of calls that a second thread queues: their order, what waits for them, and failures.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use flagos_core::runtime::{Posted, Stream, Vendor};
use flagos_core::vendors::library::*;
use flagos_core::{Error, Result};

use crate::broken::Flaw;
use crate::exported;

/// A part that is this closure, which gets whether it queues.
fn part<F: FnOnce(bool) -> i32 + Send + 'static>(name: &'static str, work: F) -> Posted {
    unsafe extern "C" fn run<F: FnOnce(bool) -> i32>(argument: *mut c_void, queues: i32) -> i32 {
        // SAFETY: the box of `part`, given back once.
        let work = unsafe { Box::from_raw(argument.cast::<F>()) };
        work(queues != 0)
    }
    let argument = Box::into_raw(Box::new(work)).cast();
    // SAFETY: `run::<F>` takes back the box of that type, once.
    unsafe { Posted::new(name, run::<F>, argument) }
}

fn stream() -> (Arc<dyn Vendor>, Arc<dyn Stream>) {
    let vendor = exported::open(Flaw::None);
    let stream = vendor.stream(0, 0).expect("a stream");
    (vendor, stream)
}

/// A part that waits for a word before it returns the status.
fn gated(name: &'static str, status: i32) -> (Posted, Sender<()>) {
    let (go_on, gate): (_, Receiver<()>) = channel();
    let waits = move |queues: bool| {
        if queues {
            let _ = gate.recv();
        }
        status
    };
    (part(name, waits), go_on)
}

/// A part that counts in `queued` or in `given_up`.
fn counted(queued: &Arc<AtomicUsize>, given_up: &Arc<AtomicUsize>) -> Posted {
    let (queued, given_up) = (Arc::clone(queued), Arc::clone(given_up));
    part("aten::later", move |queues| {
        let count = if queues { &queued } else { &given_up };
        count.fetch_add(1, Ordering::SeqCst);
        FLAGOS_VENDOR_OK
    })
}

#[test]
fn parts_are_queued_in_order_by_one_other_thread() {
    let (_vendor, stream) = stream();
    let seen: Arc<Mutex<Vec<(usize, ThreadId)>>> = Arc::default();
    // More than there is room for.
    for number in 0..3000 {
        let seen = Arc::clone(&seen);
        let note = move |queues: bool| {
            assert!(queues);
            let mut seen = seen.lock().expect("no panic");
            seen.push((number, thread::current().id()));
            FLAGOS_VENDOR_OK
        };
        stream.post(part("aten::add", note)).expect("posted");
    }
    stream.flush().expect("queued");
    let seen = seen.lock().expect("no panic");
    assert!(seen.iter().map(|(number, _)| *number).eq(0..3000));
    let by = seen[0].1;
    assert!(by != thread::current().id() && seen.iter().all(|(_, thread)| *thread == by));
}

#[test]
fn whatever_uses_the_stream_waits() {
    type Look = fn(&dyn Vendor, &dyn Stream) -> Result<()>;
    let looks: [(&str, Look); 10] = [
        ("query", |_, stream| stream.query().map(drop)),
        ("sync", |_, stream| stream.sync()),
        ("copy", |_, stream| {
            let (from, mut to) = ([7_u8; 4], [0_u8; 4]);
            // SAFETY: four bytes on both sides, until the copy has run.
            unsafe { stream.copy(to.as_mut_ptr(), from.as_ptr(), 4) }?;
            stream.sync()
        }),
        ("launch", |_, stream| {
            unsafe extern "C" fn nothing(_: *mut c_void) {}
            // SAFETY: it does nothing.
            unsafe { stream.launch(nothing, std::ptr::null_mut()) }
        }),
        ("record", |vendor, stream| {
            stream.record(&*vendor.event(0, false)?)
        }),
        ("wait", |vendor, stream| {
            stream.wait(&*vendor.event(0, false)?)
        }),
        ("flush", |_, stream| stream.flush()),
        ("device_sync", |vendor, _| vendor.device_sync(0)),
        ("quiesce", |vendor, _| vendor.quiesce(0)),
        ("free", |vendor, _| {
            let memory = vendor.alloc(0, 512)?;
            // SAFETY: just allocated, unused.
            unsafe { vendor.free(0, memory, 512) };
            Ok(())
        }),
    ];
    let (vendor, stream) = stream();
    for (name, look) in looks {
        let done = Arc::new(AtomicU64::new(0));
        let sets = Arc::clone(&done);
        let slow = move |_: bool| {
            thread::sleep(Duration::from_millis(30));
            sets.store(1, Ordering::SeqCst);
            FLAGOS_VENDOR_OK
        };
        stream.post(part("aten::slow", slow)).expect("posted");
        assert!(!stream.is_idle(), "{name}");
        look(&*vendor, &*stream).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(done.load(Ordering::SeqCst), 1, "{name} does not wait");
    }
}

fn says(outcome: Result<()>) -> String {
    outcome.map_or_else(|error: Error| error.to_string(), |()| "nothing".into())
}

#[test]
fn a_failure_gives_up_what_is_behind_it_and_is_told_once() {
    let (_vendor, stream) = stream();
    let (queued, given_up) = (Arc::default(), Arc::default());
    let (fails, go_on) = gated("aten::fails", FLAGOS_VENDOR_DEVICE);
    stream.post(fails).expect("posted");
    for _ in 0..3 {
        stream.post(counted(&queued, &given_up)).expect("posted");
    }
    go_on.send(()).expect("it waits");
    let told = says(stream.flush());
    assert!(
        told.starts_with("aten::fails: ") && told.contains("by another thread"),
        "{told}"
    );
    assert_eq!(
        (
            queued.load(Ordering::SeqCst),
            given_up.load(Ordering::SeqCst)
        ),
        (0, 3)
    );
    assert_eq!(says(stream.flush()), "nothing");
    stream.post(counted(&queued, &given_up)).expect("posted");
    stream.flush().expect("queued");
    assert_eq!(queued.load(Ordering::SeqCst), 1);
}

#[test]
fn the_next_part_tells_and_is_given_up() {
    let (_vendor, stream) = stream();
    let (queued, given_up) = (Arc::default(), Arc::default());
    // A part that declines cannot be served otherwise any more.
    let declines = part("aten::declines", |_| FLAGOS_VENDOR_UNSUPPORTED);
    stream.post(declines).expect("posted");
    let told = loop {
        match stream.post(counted(&queued, &given_up)) {
            Ok(()) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!(told.kind(), flagos_core::ErrorKind::Device, "{told}");
    assert!(given_up.load(Ordering::SeqCst) >= 1);
    stream.post(counted(&queued, &given_up)).expect("posted");
    stream.flush().expect("queued");
}

#[test]
fn every_thread_that_lost_a_part_is_told() {
    let (_vendor, stream) = stream();
    let (queued, given_up) = (Arc::default(), Arc::default());
    let (fails, go_on) = gated("aten::fails", FLAGOS_VENDOR_DEVICE);
    stream.post(fails).expect("posted");
    thread::scope(|scope| {
        let (posted, was_posted) = channel();
        let (told_first, may_look): (Sender<()>, Receiver<()>) = channel();
        let (stream, queued, given_up) = (&stream, &queued, &given_up);
        let other = scope.spawn(move || {
            stream.post(counted(queued, given_up)).expect("posted");
            posted.send(()).expect("awaited");
            may_look.recv().expect("sent");
            let first = says(stream.post(counted(queued, given_up)));
            (first, says(stream.told()))
        });
        was_posted.recv().expect("sent");
        go_on.send(()).expect("it waits");
        // This thread is the one of the call that failed, and is told; a third one never lost anything.
        assert!(says(stream.flush()).starts_with("aten::fails: "));
        scope
            .spawn(|| assert_eq!(says(stream.told()), "nothing"))
            .join()
            .expect("no panic");
        told_first.send(()).expect("awaited");
        let (first, then) = other.join().expect("no panic");
        assert!(first.starts_with("aten::fails: "), "{first}");
        assert_eq!(then, "nothing");
    });
    assert_eq!(queued.load(Ordering::SeqCst), 0);
    assert_eq!(says(stream.flush()), "nothing");
}

#[test]
fn a_stream_that_ends_hands_over_what_is_left() {
    let (_vendor, stream) = stream();
    let (queued, given_up) = (Arc::default(), Arc::default());
    let (waits, go_on) = gated("aten::waits", FLAGOS_VENDOR_OK);
    stream.post(waits).expect("posted");
    for _ in 0..5 {
        stream.post(counted(&queued, &given_up)).expect("posted");
    }
    go_on.send(()).expect("it waits");
    drop(stream);
    assert_eq!(queued.load(Ordering::SeqCst), 5);
}
