//! Streams and the work on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flagos_core::Result;
use flagos_core::runtime::sync::Mutex;
use flagos_core::runtime::{Stream, Vendor, launch_closure};

use super::probes::{Flag, Gate, Outcome, ensure, good};

pub(super) fn default_stream_is_one(vendor: &dyn Vendor, _: Duration) -> Outcome {
    let [a, b] = [vendor.default_stream(0), vendor.default_stream(0)];
    let (a, b) = (good("default_stream", a)?, good("default_stream", b)?);
    let other = good("stream", vendor.stream(0, -1))?;
    let gate = Gate::on(&*a)?;
    ensure(
        !b.is_idle(),
        "the default stream is another one at each call",
    )?;
    ensure(
        other.is_idle() && other.device() == 0,
        "a new stream is not new",
    )?;
    drop(gate);
    good("sync", b.sync())
}

pub(super) fn work_runs_in_order(vendor: &dyn Vendor, _: Duration) -> Outcome {
    let stream = good("stream", vendor.stream(0, 0))?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let gate = Gate::on(&*stream)?;
    for i in 0..100 {
        let seen = Arc::clone(&seen);
        let work = move || seen.lock().push(i);
        good("launch", launch_closure(&*stream, work))?;
    }
    drop(gate);
    good("sync", stream.sync())?;
    let seen = seen.lock();
    ensure(seen.iter().copied().eq(0..100), format!("order {seen:?}"))
}

pub(super) fn sync_waits(vendor: &dyn Vendor, patience: Duration) -> Outcome {
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

/// Whether `wait` returns only after slow work queued on `stream`.
fn waits_for(
    stream: &dyn Stream,
    patience: Duration,
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
            while start.elapsed() < patience && !returned.load(Ordering::Acquire) {
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

pub(super) fn device_sync_waits(vendor: &dyn Vendor, patience: Duration) -> Outcome {
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

pub(super) fn dropped_stream_runs_on(vendor: &dyn Vendor, _: Duration) -> Outcome {
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

pub(super) fn streams_are_independent(vendor: &dyn Vendor, _: Duration) -> Outcome {
    let (a, b) = (
        good("stream", vendor.stream(0, 0))?,
        good("stream", vendor.stream(0, 0))?,
    );
    let flag = Flag::new(vendor)?;
    let gate = Gate::on(&*a)?;
    flag.raise_on(&*b)?;
    // A wrong vendor would hang in a sync.
    let start = Instant::now();
    while !b.is_idle() && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    let (copied, blocked) = (flag.is_raised(), !a.is_idle());
    drop(gate);
    good("sync", a.sync())?;
    ensure(copied && blocked, "one stream had to wait for another")
}

pub(super) fn pending_is_exact(vendor: &dyn Vendor, _: Duration) -> Outcome {
    // `launch`, `copy`, `record` and `wait` on a busy stream are one item each, and where the host does
    // not compute on device memory nothing is counted.
    let wanted = if vendor.host_computes() { 4 } else { 0 };
    let pending = || vendor.pending().load(Ordering::Acquire);
    let flag = Flag::new(vendor)?;
    ensure(pending() == 0, "unfinished work at the start")?;
    let (a, b) = (
        good("stream", vendor.stream(0, 0))?,
        good("stream", vendor.stream(0, 0))?,
    );
    let event = good("event", vendor.event(0, false))?;
    let gate = Gate::on(&*a)?;
    flag.raise_on(&*a)?;
    good("record", a.record(&*event))?;
    good("wait", b.wait(&*event))?;
    let during = pending();
    drop(gate);
    good("sync", a.sync())?;
    good("sync", b.sync())?;
    ensure(
        during == wanted,
        format!("{during} items are pending instead of {wanted}"),
    )?;
    let after = pending();
    ensure(
        after == 0,
        format!("{after} items are pending after everything was waited for"),
    )
}

pub(super) fn work_knows_that_it_is_work(vendor: &dyn Vendor, _: Duration) -> Outcome {
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
