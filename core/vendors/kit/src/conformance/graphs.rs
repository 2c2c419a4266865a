//! Graphs of captured work, of vendors that capture.

use std::ptr::NonNull;
use std::time::Duration;

use flagos_core::Result;
use flagos_core::error::ErrorKind;
use flagos_core::runtime::{CaptureMode, Graph, Stream, Vendor};

use super::probes::{Gate, Outcome, Pinned, copy, ensure, good};

/// Device memory of two bytes, and pinned memory of two: the first holds what goes in, the second what comes out.
struct Bytes<'v> {
    vendor: &'v dyn Vendor,
    host: Pinned<'v>,
    device: NonNull<u8>,
}

impl<'v> Bytes<'v> {
    fn new(vendor: &'v dyn Vendor) -> std::result::Result<Self, String> {
        Ok(Self {
            vendor,
            host: Pinned::new(vendor, 2)?,
            device: good("alloc", vendor.alloc(0, 2))?,
        })
    }

    fn set(&self, value: u8) {
        self.host
            .byte(0)
            .store(value, std::sync::atomic::Ordering::Release);
    }

    fn result(&self) -> u8 {
        self.host.byte(1).load(std::sync::atomic::Ordering::Acquire)
    }

    fn second(&self) -> *mut u8 {
        self.device.as_ptr().wrapping_add(1)
    }

    /// Queues the way from the first byte over the device to the second one.
    fn queue(&self, stream: &dyn Stream) -> Outcome {
        copy(stream, self.device.as_ptr(), self.host.address(), 1)?;
        self.queue_rest(stream)
    }

    fn queue_rest(&self, stream: &dyn Stream) -> Outcome {
        copy(stream, self.second(), self.device.as_ptr(), 1)?;
        copy(
            stream,
            self.host.address().wrapping_add(1),
            self.second(),
            1,
        )
    }
}

impl Drop for Bytes<'_> {
    fn drop(&mut self) {
        if self.vendor.quiesce(0).is_ok() {
            // SAFETY: allocated in `new` with this size, and nothing is queued any more.
            unsafe { self.vendor.free(0, self.device, 2) };
        }
    }
}

fn begin(stream: &dyn Stream) -> Outcome {
    good(
        "begin_capture",
        stream.begin_capture(CaptureMode::default()),
    )
}

fn replay(stream: &dyn Stream, graph: &dyn Graph) -> Outcome {
    // SAFETY: every caller keeps the memory until the stream is synchronised.
    good("replay", unsafe { stream.replay(graph) })
}

fn captured(stream: &dyn Stream) -> std::result::Result<Option<bool>, String> {
    Ok(good("capture", stream.capture())?.map(|capture| capture.valid))
}

pub(super) fn captured_work_is_replayed(vendor: &dyn Vendor, _: Duration) -> Outcome {
    if vendor.captures().is_err() {
        return Ok(());
    }
    let stream = good("stream", vendor.stream(0, 0))?;
    let other = good("stream", vendor.stream(0, 0))?;
    let bytes = Bytes::new(vendor)?;
    bytes.set(1);
    ensure(captured(&*stream)?.is_none(), "a new stream is captured")?;
    begin(&*stream)?;
    ensure(
        captured(&*stream)? == Some(true) && captured(&*other)?.is_none(),
        "during a capture its stream, and no other one, is captured",
    )?;
    bytes.queue(&*stream)?;
    let graph = good("end_capture", stream.end_capture())?;
    ensure(captured(&*stream)?.is_none(), "captured after the end")?;
    good("sync", stream.sync())?;
    ensure(bytes.result() == 0, "captured work ran without a replay")?;
    for (value, stream) in [(2, &stream), (3, &stream), (4, &other)] {
        bytes.set(value);
        replay(&**stream, &*graph)?;
        good("sync", stream.sync())?;
        ensure(
            bytes.result() == value,
            format!("a replay gave {} for {value}", bytes.result()),
        )?;
    }
    Ok(())
}

/// Lets one stream wait for what another one has queued, by a new event of device 0.
fn follow(vendor: &dyn Vendor, behind: &dyn Stream, ahead: &dyn Stream) -> Outcome {
    let event = good("event", vendor.event(0, false))?;
    good("record", ahead.record(&*event))?;
    good("wait", behind.wait(&*event))
}

pub(super) fn streams_join_a_capture(vendor: &dyn Vendor, _: Duration) -> Outcome {
    if vendor.captures().is_err() {
        return Ok(());
    }
    let [first, second] = [(); 2].map(|()| vendor.stream(0, 0));
    let (first, second) = (good("stream", first)?, good("stream", second)?);
    let bytes = Bytes::new(vendor)?;
    bytes.set(1);
    begin(&*first)?;
    copy(&*first, bytes.device.as_ptr(), bytes.host.address(), 1)?;
    follow(vendor, &*second, &*first)?;
    let id = |stream: &dyn Stream| {
        Ok::<_, String>(good("capture", stream.capture())?.map(|found| found.id))
    };
    ensure(
        id(&*first)?.is_some() && id(&*first)? == id(&*second)?,
        "a stream that waits for an event of a capture is not in that capture",
    )?;
    bytes.queue_rest(&*second)?;
    follow(vendor, &*first, &*second)?;
    let graph = good("end_capture", first.end_capture())?;
    ensure(captured(&*second)?.is_none(), "captured after the end")?;
    for value in [5, 6] {
        bytes.set(value);
        replay(&*first, &*graph)?;
        good("sync", first.sync())?;
        ensure(
            bytes.result() == value,
            "the graph lost the work of a stream",
        )?;
    }
    // A stream that does not come back.
    begin(&*first)?;
    follow(vendor, &*second, &*first)?;
    bytes.queue(&*second)?;
    ensure(
        first.end_capture().is_err(),
        "a capture ended although a stream of it has not come back",
    )?;
    ensure(
        captured(&*first)?.is_none() && captured(&*second)?.is_none(),
        "a capture that failed has not ended",
    )?;
    for stream in [&first, &second] {
        bytes.set(7);
        bytes.queue(&**stream)?;
        good("sync after a capture that failed", stream.sync())?;
        ensure(
            bytes.result() == 7,
            "a stream computes nothing after a capture that failed",
        )?;
        bytes.set(8);
    }
    good("device_sync", vendor.device_sync(0))
}

pub(super) fn a_capture_refuses_waits(vendor: &dyn Vendor, _: Duration) -> Outcome {
    unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}
    if vendor.captures().is_err() {
        return Ok(());
    }
    let stream = good("stream", vendor.stream(0, 0))?;
    let bytes = Bytes::new(vendor)?;
    let event = good("event", vendor.event(0, false))?;
    let mut ordinary = vec![9_u8];
    bytes.set(1);
    begin(&*stream)?;
    good("record", stream.record(&*event))?;
    let address = ordinary.as_mut_ptr();
    // SAFETY: the memory outlives the calls, which are refused; the function does nothing.
    let calls: [(&str, Result<()>); 7] = unsafe {
        [
            ("stream_sync", stream.sync()),
            ("stream_query", stream.query().map(drop)),
            ("event_sync", event.sync()),
            ("event_query", event.query().map(drop)),
            ("device_sync", vendor.device_sync(0)),
            (
                "stream_copy of ordinary memory",
                stream.copy(bytes.device.as_ptr(), address, 1),
            ),
            (
                "stream_host_function",
                stream.launch(nothing, std::ptr::null_mut()),
            ),
        ]
    };
    for (call, outcome) in calls {
        match outcome {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(format!("{call} during a capture: {error}")),
            Ok(()) => return Err(format!("{call} succeeded during a capture")),
        }
    }
    ensure(!stream.is_idle(), "a captured stream says that it is idle")?;
    ensure(
        captured(&*stream)? == Some(true),
        "a call that was refused made the capture invalid",
    )?;
    bytes.queue(&*stream)?;
    let graph = good("end_capture", stream.end_capture())?;
    replay(&*stream, &*graph)?;
    good("sync", stream.sync())?;
    ensure(bytes.result() == 1, "the replay computed nothing")?;
    good("record", stream.record(&*event))?;
    good("sync of an event that was captured before", event.sync())?;
    good("device_sync", vendor.device_sync(0))
}

pub(super) fn dropped_graph_runs_on(vendor: &dyn Vendor, _: Duration) -> Outcome {
    if vendor.captures().is_err() {
        return Ok(());
    }
    let [stream, slow] = [(); 2].map(|()| vendor.stream(0, 0));
    let (stream, slow) = (good("stream", stream)?, good("stream", slow)?);
    let bytes = Bytes::new(vendor)?;
    begin(&*stream)?;
    bytes.queue(&*stream)?;
    let graph = good("end_capture", stream.end_capture())?;
    bytes.set(3);
    let gate = Gate::on(&*slow)?;
    follow(vendor, &*stream, &*slow)?;
    replay(&*stream, &*graph)?;
    drop(graph);
    ensure(bytes.result() == 0, "the graph did not wait")?;
    drop(gate);
    good("sync", stream.sync())?;
    ensure(bytes.result() == 3, "a graph that was dropped did not run")?;
    good("device_sync", vendor.device_sync(0))
}
