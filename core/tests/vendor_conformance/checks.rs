//! What every vendor must do. A check returns what is wrong in words, and knows no vendor.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use flagos_core::runtime::{launch_closure, Stream, Vendor, ALIGNMENT};
use flagos_core::{ErrorKind, Result};

/// How long a check gives a wrong vendor to show itself, where a right one does nothing.
pub struct Patience(pub Duration);

type Outcome = std::result::Result<(), String>;
type Check = fn(&dyn Vendor, &Patience) -> Outcome;

/// The suite.
pub const SUITE: &[(&str, Check)] = &[
    ("devices are described", devices_are_described),
    (
        "memory is aligned and disjoint",
        memory_is_aligned_and_disjoint,
    ),
    ("memory is accounted for", memory_is_accounted_for),
    (
        "more than there is is refused",
        more_than_there_is_is_refused,
    ),
    ("the default stream is one", the_default_stream_is_one),
    ("copies arrive", copies_arrive),
    ("work runs in order", work_runs_in_order),
    ("sync waits, query does not", sync_waits_query_does_not),
    (
        "device sync and quiesce wait for every stream",
        device_sync_waits_for_every_stream,
    ),
    (
        "a dropped stream runs its work",
        a_dropped_stream_runs_its_work,
    ),
    (
        "streams do not block each other",
        streams_do_not_block_each_other,
    ),
    ("pending is exact", pending_is_exact),
    ("an event follows its stream", an_event_follows_its_stream),
    ("a wait orders two streams", a_wait_orders_two_streams),
    (
        "a wait keeps what the event stood for",
        a_wait_keeps_what_the_event_stood_for,
    ),
    (
        "events can be dropped while queued",
        events_can_be_dropped_while_queued,
    ),
    ("time passes between events", time_passes_between_events),
    ("work knows that it is work", work_knows_that_it_is_work),
];

fn ensure(condition: bool, what: impl Into<String>) -> Outcome {
    condition.then_some(()).ok_or_else(|| what.into())
}

/// The value of a call that must succeed.
fn good<T>(what: &str, outcome: Result<T>) -> std::result::Result<T, String> {
    outcome.map_err(|error| format!("{what}: {error}"))
}

/// Work that keeps its stream busy until it is opened or dropped.
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn on(stream: &dyn Stream) -> std::result::Result<Self, String> {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let inside = Arc::clone(&gate);
        let work = move || {
            let open = inside.0.lock().expect("no panic");
            drop(inside.1.wait_while(open, |open| !*open).expect("no panic"));
        };
        good("launch", launch_closure(stream, work))?;
        Ok(Self(gate))
    }

    fn open(&self) {
        *self.0 .0.lock().expect("no panic") = true;
        self.0 .1.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// Pinned memory of a vendor.
struct Pinned<'v> {
    vendor: &'v dyn Vendor,
    data: NonNull<u8>,
    nbytes: usize,
}

impl<'v> Pinned<'v> {
    fn new(vendor: &'v dyn Vendor, nbytes: usize) -> std::result::Result<Self, String> {
        let data = good("pinned_alloc", vendor.pinned_alloc(nbytes))?;
        // SAFETY: just allocated with this size.
        unsafe { data.as_ptr().write_bytes(0, nbytes) };
        Ok(Self {
            vendor,
            data,
            nbytes,
        })
    }

    fn address(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// A byte that streams write behind the compiler's back.
    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.nbytes);
        // SAFETY: within the allocation, aligned, and atomics have no invalid values.
        unsafe { AtomicU8::from_ptr(self.address().add(at)) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // Queued copies may still use it.
        let quiet = (0..self.vendor.device_count()).all(|d| self.vendor.quiesce(d).is_ok());
        if quiet {
            // SAFETY: from `pinned_alloc` with this size, and nothing is queued any more.
            unsafe { self.vendor.pinned_free(self.data, self.nbytes) };
        }
    }
}

fn copy(stream: &dyn Stream, dst: *mut u8, src: *const u8, nbytes: usize) -> Outcome {
    // SAFETY: every caller keeps both ranges alive until the stream is synchronised.
    good("copy", unsafe { stream.copy(dst, src, nbytes) })
}

fn devices_are_described(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    let count = vendor.device_count();
    ensure(count > 0, "a vendor without a device")?;
    ensure(!vendor.name().is_empty(), "no name")?;
    for device in 0..count {
        let properties = good("properties", vendor.properties(device))?;
        let memory = good("memory", vendor.memory(device))?;
        ensure(!properties.name.is_empty(), "a device without a name")?;
        ensure(properties.multi_processor_count > 0, "no processors")?;
        ensure(
            properties.total_memory == memory.total,
            "two different totals",
        )?;
        ensure(memory.free <= memory.total, "more free than there is")?;
    }
    for error in [
        vendor.properties(count).err(),
        vendor.memory(count).err(),
        vendor.alloc(count, 1).err(),
        vendor.stream(count, 0).err(),
        vendor.default_stream(count).err(),
        vendor.event(count, false).err(),
        vendor.device_sync(count).err(),
    ] {
        let kind = error.map(|error| error.kind());
        ensure(
            kind == Some(ErrorKind::InvalidArgument),
            format!("device {count}: {kind:?}"),
        )?;
    }
    Ok(())
}

fn memory_is_aligned_and_disjoint(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    let sizes = [1, 512, 4096, 2 << 20, 2 << 20, (2 << 20) + 512, 20 << 20];
    let mut blocks = Vec::new();
    let mut outcome = Ok(());
    for size in sizes {
        match vendor.alloc(0, size) {
            Ok(address) => blocks.push((address, size)),
            Err(error) => outcome = Err(format!("alloc of {size}: {error}")),
        }
    }
    let range = |&(address, size): &(NonNull<u8>, usize)| {
        let start = address.as_ptr() as usize;
        start..start + size
    };
    for (i, a) in blocks.iter().map(range).enumerate() {
        outcome = outcome.and(ensure(
            a.start % ALIGNMENT == 0,
            format!("{a:x?} is not aligned"),
        ));
        for b in blocks.iter().map(range).skip(i + 1) {
            let apart = a.end <= b.start || b.end <= a.start;
            outcome = outcome.and(ensure(apart, format!("{a:x?} and {b:x?} overlap")));
        }
    }
    for (address, size) in blocks {
        // SAFETY: allocated above with this size, unused.
        unsafe { vendor.free(0, address, size) };
    }
    outcome
}

fn memory_is_accounted_for(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    const NBYTES: usize = 8 << 20;
    let free = || good("memory", vendor.memory(0)).map(|memory| memory.free);
    let before = free()?;
    let address = good("alloc", vendor.alloc(0, NBYTES))?;
    let during = free()?;
    // SAFETY: just allocated with this size, unused.
    unsafe { vendor.free(0, address, NBYTES) };
    ensure(
        during + NBYTES as u64 <= before,
        format!("{before} free before, {during} after"),
    )?;
    ensure(free()? == before, "freed memory does not come back")
}

fn more_than_there_is_is_refused(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    let total = good("memory", vendor.memory(0))?.total as usize;
    for nbytes in [total + 1, usize::MAX / 2, usize::MAX] {
        let outcome = vendor.alloc(0, nbytes);
        let kind = outcome.map_err(|error| error.kind()).err();
        ensure(
            kind == Some(ErrorKind::OutOfMemory),
            format!("{nbytes} bytes: {kind:?}"),
        )?;
    }
    let address = good("alloc afterwards", vendor.alloc(0, 4096))?;
    // SAFETY: just allocated with this size, unused.
    unsafe { vendor.free(0, address, 4096) };
    Ok(())
}

fn the_default_stream_is_one(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    let [a, b] = [vendor.default_stream(0), vendor.default_stream(0)];
    let (a, b) = (good("default_stream", a)?, good("default_stream", b)?);
    let gate = Gate::on(&*a)?;
    ensure(
        !b.is_idle(),
        "the default stream is another one at each call",
    )?;
    let other = good("stream", vendor.stream(0, -1))?;
    ensure(
        other.is_idle() && other.device() == 0,
        "a new stream is not new",
    )?;
    drop(gate);
    good("sync", b.sync())
}

fn copies_arrive(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    const NBYTES: usize = 1 << 20;
    let stream = good("stream", vendor.stream(0, 0))?;
    let (from, to) = (Pinned::new(vendor, NBYTES)?, Pinned::new(vendor, NBYTES)?);
    for i in 0..NBYTES {
        from.byte(i).store((i * 31 % 251) as u8, Ordering::Relaxed);
    }
    let device = good("alloc", vendor.alloc(0, 2 * NBYTES))?;
    let [a, b] = [0, NBYTES].map(|offset| device.as_ptr().wrapping_add(offset));
    let outcome = copy(&*stream, a, from.address(), NBYTES)
        .and_then(|()| copy(&*stream, b, a, NBYTES))
        .and_then(|()| copy(&*stream, to.address(), b, NBYTES))
        .and_then(|()| copy(&*stream, std::ptr::null_mut(), std::ptr::null(), 0))
        .and_then(|()| good("sync", stream.sync()));
    // SAFETY: allocated above with this size, and the stream is synchronised.
    unsafe { vendor.free(0, device, 2 * NBYTES) };
    outcome?;
    let byte = |pinned: &Pinned<'_>, i| pinned.byte(i).load(Ordering::Relaxed);
    let wrong = (0..NBYTES).find(|&i| byte(&from, i) != byte(&to, i));
    ensure(wrong.is_none(), format!("byte {wrong:?} differs"))
}

fn work_runs_in_order(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    let stream = good("stream", vendor.stream(0, 0))?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let gate = Gate::on(&*stream)?;
    for i in 0..100 {
        let seen = Arc::clone(&seen);
        let work = move || seen.lock().expect("no panic").push(i);
        good("launch", launch_closure(&*stream, work))?;
    }
    drop(gate);
    good("sync", stream.sync())?;
    let seen = seen.lock().expect("no panic");
    ensure(seen.iter().copied().eq(0..100), format!("order {seen:?}"))
}

fn sync_waits_query_does_not(vendor: &dyn Vendor, patience: &Patience) -> Outcome {
    let stream = good("stream", vendor.stream(0, 0))?;
    good("sync of an idle stream", stream.sync())?;
    ensure(good("query", stream.query())?, "a new stream is busy")?;
    let gate = Gate::on(&*stream)?;
    ensure(
        !good("query", stream.query())?,
        "a blocked stream says that it is idle",
    )?;
    drop(gate);
    ensure(
        waits_for(&*stream, patience, || stream.sync())?,
        "sync returned before the work ran",
    )?;
    ensure(good("query", stream.query())?, "busy after a sync")
}

/// Whether `wait` returns only after work queued on `stream`, which takes its time.
fn waits_for(
    stream: &dyn Stream,
    patience: &Patience,
    wait: impl FnOnce() -> Result<()>,
) -> std::result::Result<bool, String> {
    let gate = Gate::on(stream)?;
    let (ran, returned) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let inside = Arc::clone(&ran);
    good(
        "launch",
        launch_closure(stream, move || inside.store(true, Ordering::Release)),
    )?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while start.elapsed() < patience.0 && !returned.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            gate.open();
        });
        let outcome = wait();
        let after = ran.load(Ordering::Acquire);
        returned.store(true, Ordering::Release);
        good("wait", outcome).map(|()| after)
    })
}

fn device_sync_waits_for_every_stream(vendor: &dyn Vendor, patience: &Patience) -> Outcome {
    for wait in [Vendor::device_sync, Vendor::quiesce] as [fn(&_, _) -> _; 2] {
        for stream in [
            vendor.stream(0, 0),
            vendor.stream(0, -1),
            vendor.default_stream(0),
        ] {
            let stream = good("stream", stream)?;
            let waited = waits_for(&*stream, patience, || wait(vendor, 0))?;
            ensure(waited, "a stream was not waited for")?;
        }
    }
    Ok(())
}

fn a_dropped_stream_runs_its_work(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    let ran = Arc::new(AtomicUsize::new(0));
    let stream = good("stream", vendor.stream(0, 0))?;
    for _ in 0..10 {
        let ran = Arc::clone(&ran);
        let work = move || {
            ran.fetch_add(1, Ordering::Release);
        };
        good("launch", launch_closure(&*stream, work))?;
    }
    drop(stream);
    good("quiesce", vendor.quiesce(0))?;
    let ran = ran.load(Ordering::Acquire);
    ensure(ran == 10, format!("{ran} of 10 items ran"))
}

fn streams_do_not_block_each_other(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    let (a, b) = (
        good("stream", vendor.stream(0, 0))?,
        good("stream", vendor.stream(0, 0))?,
    );
    let (from, to) = (Pinned::new(vendor, 1)?, Pinned::new(vendor, 1)?);
    from.byte(0).store(1, Ordering::Relaxed);
    let gate = Gate::on(&*a)?;
    copy(&*b, to.address(), from.address(), 1)?;
    // A sync would hang with a vendor that is wrong.
    let start = Instant::now();
    while !b.is_idle() && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    let (copied, blocked) = (to.byte(0).load(Ordering::Relaxed) == 1, !a.is_idle());
    drop(gate);
    good("sync", a.sync())?;
    ensure(copied && blocked, "one stream had to wait for another")
}

fn pending_is_exact(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    // `launch`, `copy`, `record` and `wait` on a busy stream are one item each.
    let pending = || vendor.pending().load(Ordering::Acquire);
    ensure(pending() == 0, "unfinished work at the start")?;
    let (a, b) = (
        good("stream", vendor.stream(0, 0))?,
        good("stream", vendor.stream(0, 0))?,
    );
    let event = good("event", vendor.event(0, false))?;
    let bytes = Pinned::new(vendor, 2)?;
    let gate = Gate::on(&*a)?;
    copy(&*a, bytes.address(), bytes.address().wrapping_add(1), 1)?;
    good("record", a.record(&*event))?;
    good("wait", b.wait(&*event))?;
    let during = pending();
    drop(gate);
    good("sync", a.sync())?;
    good("sync", b.sync())?;
    ensure(
        during == 4,
        format!("{during} items are pending instead of 4"),
    )?;
    let after = pending();
    ensure(
        after == 0,
        format!("{after} items are pending after everything was waited for"),
    )
}

fn an_event_follows_its_stream(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    let stream = good("stream", vendor.stream(0, 0))?;
    let event = good("event", vendor.event(0, false))?;
    ensure(
        good("query", event.query())?,
        "an event never recorded is not finished",
    )?;
    good("sync of an event never recorded", event.sync())?;
    good("record on an idle stream", stream.record(&*event))?;
    good("sync", event.sync())?;
    ensure(good("query", event.query())?, "not finished after a sync")?;
    let gate = Gate::on(&*stream)?;
    ensure(
        good("query", event.query())?,
        "later work changes the event",
    )?;
    good("record again", stream.record(&*event))?;
    ensure(
        !good("query", event.query())?,
        "finished while its stream is blocked",
    )?;
    let later = Gate::on(&*stream)?;
    drop(gate);
    good("sync", event.sync())?;
    ensure(good("query", event.query())?, "not finished after a sync")?;
    ensure(!stream.is_idle(), "the event waited for later work")?;
    drop(later);
    good("sync", stream.sync())
}

/// Lets `other` copy a flag after it has waited for whatever the test arranged, and makes `blocked`
/// watch that flag for a while. Returns whether the flag came too early.
fn watch(
    vendor: &dyn Vendor,
    patience: &Patience,
    blocked: &dyn Stream,
    arrange: impl FnOnce() -> Outcome,
    other: &dyn Stream,
) -> std::result::Result<bool, String> {
    let flag = Pinned::new(vendor, 2)?;
    flag.byte(1).store(1, Ordering::Relaxed);
    let early = Arc::new(AtomicBool::new(false));
    let (address, seen, patience) = (flag.address() as usize, Arc::clone(&early), patience.0);
    let work = move || {
        // SAFETY: `flag` is dropped after a quiesce only.
        let byte = unsafe { AtomicU8::from_ptr(address as *mut u8) };
        let start = Instant::now();
        while start.elapsed() < patience && !seen.load(Ordering::Relaxed) {
            seen.store(byte.load(Ordering::Acquire) != 0, Ordering::Relaxed);
            std::thread::yield_now();
        }
    };
    good("launch", launch_closure(blocked, work))?;
    arrange()?;
    copy(other, flag.address(), flag.address().wrapping_add(1), 1)?;
    good("sync", other.sync())?;
    good("sync", blocked.sync())?;
    Ok(early.load(Ordering::Relaxed))
}

fn a_wait_orders_two_streams(vendor: &dyn Vendor, patience: &Patience) -> Outcome {
    let (a, b) = (
        good("stream", vendor.stream(0, 0))?,
        good("stream", vendor.stream(0, 0))?,
    );
    let event = good("event", vendor.event(0, false))?;
    good("wait for an event never recorded", b.wait(&*event))?;
    good("sync", b.sync())?;
    let arrange = || {
        good("record", a.record(&*event))?;
        good("wait", b.wait(&*event))
    };
    let early = watch(vendor, patience, &*a, arrange, &*b)?;
    ensure(!early, "work ran before the event it waits for")
}

fn a_wait_keeps_what_the_event_stood_for(vendor: &dyn Vendor, patience: &Patience) -> Outcome {
    let [a, b, c] = [(); 3].map(|()| vendor.stream(0, 0));
    let (a, b, c) = (good("stream", a)?, good("stream", b)?, good("stream", c)?);
    let event = good("event", vendor.event(0, false))?;
    // The wait is queued behind this gate, and must not look at the event only when it runs.
    let gate = Gate::on(&*b)?;
    let arrange = || {
        good("record", a.record(&*event))?;
        good("wait", b.wait(&*event))?;
        good("record elsewhere", c.record(&*event))?;
        good("sync", event.sync())?;
        gate.open();
        Ok(())
    };
    let early = watch(vendor, patience, &*a, arrange, &*b)?;
    ensure(
        !early,
        "recording an event again changed what a stream waits for",
    )
}

fn events_can_be_dropped_while_queued(vendor: &dyn Vendor, patience: &Patience) -> Outcome {
    let (a, b) = (
        good("stream", vendor.stream(0, 0))?,
        good("stream", vendor.stream(0, 0))?,
    );
    let arrange = || {
        let event = good("event", vendor.event(0, false))?;
        good("record", a.record(&*event))?;
        good("wait", b.wait(&*event))
    };
    let early = watch(vendor, patience, &*a, arrange, &*b)?;
    ensure(!early, "dropping an event dropped the wait")
}

fn time_passes_between_events(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    let stream = good("stream", vendor.stream(0, 0))?;
    let event = |timing| good("event", vendor.event(0, timing));
    let (start, end, plain) = (event(true)?, event(true)?, event(false)?);
    let refused = |outcome: Result<f64>, what: &str| {
        let kind = outcome.err().map(|error| error.kind());
        ensure(
            kind == Some(ErrorKind::InvalidArgument),
            format!("{what}: {kind:?}"),
        )
    };
    refused(start.elapsed_ms(&*end), "events never recorded")?;
    good("record", stream.record(&*start))?;
    good("record", stream.record(&*plain))?;
    let gate = Gate::on(&*stream)?;
    good("record", stream.record(&*end))?;
    good("sync", start.sync())?;
    refused(start.elapsed_ms(&*end), "an event not finished")?;
    let clock = Instant::now();
    while clock.elapsed() < Duration::from_millis(2) {
        std::hint::spin_loop();
    }
    drop(gate);
    good("sync", stream.sync())?;
    refused(start.elapsed_ms(&*plain), "an event without timing")?;
    let forward = good("elapsed", start.elapsed_ms(&*end))?;
    let backward = good("elapsed", end.elapsed_ms(&*start))?;
    ensure(
        forward >= 2.0,
        format!("{forward} ms, at least 2 have passed"),
    )?;
    ensure(
        (forward + backward).abs() < 1e-3,
        format!("{forward} there, {backward} back"),
    )
}

fn work_knows_that_it_is_work(vendor: &dyn Vendor, _: &Patience) -> Outcome {
    ensure(!vendor.in_stream_work(), "this thread is not a stream's")?;
    // The vendor outlives the work: the stream is synchronised below.
    struct Shared(*const dyn Vendor);
    // SAFETY: vendors are `Sync`.
    unsafe impl Send for Shared {}
    // SAFETY: only the lifetime changes, see above.
    let address = Shared(unsafe { std::mem::transmute::<&dyn Vendor, *const dyn Vendor>(vendor) });
    let stream = good("stream", vendor.stream(0, 0))?;
    let answer = Arc::new(AtomicBool::new(false));
    let inside = Arc::clone(&answer);
    let work = move || {
        let address = address;
        // SAFETY: see above.
        inside.store(unsafe { &*address.0 }.in_stream_work(), Ordering::Release);
    };
    good("launch", launch_closure(&*stream, work))?;
    good("sync", stream.sync())?;
    ensure(
        answer.load(Ordering::Acquire),
        "work is not recognised: waiting in it would hang",
    )
}
