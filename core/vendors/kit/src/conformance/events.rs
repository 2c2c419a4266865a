//! Events, and waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use flagos_core::runtime::{Stream, Vendor, launch_closure};
use flagos_core::{ErrorKind, Result};

use super::probes::{Flag, Gate, Outcome, ensure, good};

pub(super) fn event_follows_its_stream(vendor: &dyn Vendor, _: Duration) -> Outcome {
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

/// Lets `other` raise the flag behind the wait that the test queued, and `blocked` watch the flag for a while.
/// Returns whether the flag was raised too early.
fn watch(
    flag: &Flag<'_>,
    patience: Duration,
    blocked: &dyn Stream,
    arrange: impl FnOnce() -> Outcome,
    other: &dyn Stream,
) -> std::result::Result<bool, String> {
    let early = Arc::new(AtomicBool::new(false));
    let (address, seen, patience) = (flag.address(), Arc::clone(&early), patience);
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
    flag.raise_on(other)?;
    good("sync", other.sync())?;
    good("sync", blocked.sync())?;
    Ok(early.load(Ordering::Relaxed))
}

pub(super) fn wait_orders_streams(vendor: &dyn Vendor, patience: Duration) -> Outcome {
    let (a, b) = (
        good("stream", vendor.stream(0, 0))?,
        good("stream", vendor.stream(0, 0))?,
    );
    let event = good("event", vendor.event(0, false))?;
    good("wait for an event never recorded", b.wait(&*event))?;
    good("sync", b.sync())?;
    let flag = Flag::new(vendor)?;
    let arrange = || {
        good("record", a.record(&*event))?;
        good("wait", b.wait(&*event))
    };
    let early = watch(&flag, patience, &*a, arrange, &*b)?;
    ensure(!early, "work ran before the event it waits for")
}

pub(super) fn wait_keeps_its_point(vendor: &dyn Vendor, patience: Duration) -> Outcome {
    let [a, b, c] = [(); 3].map(|()| vendor.stream(0, 0));
    let (a, b, c) = (good("stream", a)?, good("stream", b)?, good("stream", c)?);
    let event = good("event", vendor.event(0, false))?;
    let flag = Flag::new(vendor)?;
    // The wait is queued behind this gate, and must use the event as it is now, and not when the wait runs.
    let gate = Gate::on(&*b)?;
    let arrange = || {
        good("record", a.record(&*event))?;
        good("wait", b.wait(&*event))?;
        good("record elsewhere", c.record(&*event))?;
        good("sync", event.sync())?;
        gate.open();
        Ok(())
    };
    let early = watch(&flag, patience, &*a, arrange, &*b)?;
    ensure(
        !early,
        "recording an event again changed what a stream waits for",
    )
}

pub(super) fn dropped_event_is_waited_for(vendor: &dyn Vendor, patience: Duration) -> Outcome {
    let (a, b) = (
        good("stream", vendor.stream(0, 0))?,
        good("stream", vendor.stream(0, 0))?,
    );
    let flag = Flag::new(vendor)?;
    let arrange = || {
        let event = good("event", vendor.event(0, false))?;
        good("record", a.record(&*event))?;
        good("wait", b.wait(&*event))
    };
    let early = watch(&flag, patience, &*a, arrange, &*b)?;
    ensure(!early, "dropping an event dropped the wait")
}

pub(super) fn time_passes_between_events(vendor: &dyn Vendor, _: Duration) -> Outcome {
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
