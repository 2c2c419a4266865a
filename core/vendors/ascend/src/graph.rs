//! Graphs: the work of streams, captured by the functions `aclmdlRI*`.
//!
//! A capture takes streams of the hardware, of which a graph keeps some for as long as it lives. During a capture the
//! runtime allows no wait for the device. So what has to be destroyed or freed stays until the capture has ended.

use std::any::Any;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use flagos_core::error::{Error, ErrorKind, Result};
use flagos_core::runtime::{Capture, CaptureMode, Graph};
use flagos_vendor_kit::driver::{DriverDevice as _, DriverEvents as _};

use super::api::{CAPTURE_ACTIVE, CAPTURE_NONE, Code, Handle};
use super::captures::{CAPTURES, Functions};
use super::device::{Device, Discarded};
use super::error::STREAM_NOT_CAPTURED;

fn begun(device: &Device) {
    CAPTURES.fetch_add(1, Ordering::SeqCst);
    device.captures.fetch_add(1, Ordering::SeqCst);
}

fn ended(device: &Device) {
    device.captures.fetch_sub(1, Ordering::SeqCst);
    CAPTURES.fetch_sub(1, Ordering::SeqCst);
}

/// Begins a capture of a stream, whose context is current.
pub(super) fn begin(device: &Device, stream: Handle, mode: CaptureMode) -> Result<()> {
    // `FEATURE_NOT_SUPPORT`, `API_NOT_SUPPORT` and `FEATURE_UNSUPPORTED`.
    const NO_GRAPHS: [Code; 3] = [207_000, 200_001, 200_006];
    let functions = Functions::of(device.api)?;
    // From before the beginning on nothing waits for the device, or asks it.
    begun(device);
    // SAFETY: a live stream.
    let code = unsafe { (functions.begin)(stream, mode as i32) };
    device
        .api
        .check("aclmdlRICaptureBegin", code)
        .map_err(|error| {
            ended(device);
            let error = device.located(error);
            if NO_GRAPHS.contains(&code) {
                Error::new(ErrorKind::Unsupported, "begin_capture", error.to_string())
            } else {
                error
            }
        })
}

/// The capture that a stream, whose context is current, belongs to.
pub(super) fn capture(device: &Device, stream: Handle) -> Result<Option<Capture>> {
    let functions = Functions::of(device.api)?;
    let (mut status, mut graph) = (CAPTURE_NONE, null_mut());
    // SAFETY: a live stream, and valid outputs.
    let code = unsafe { (functions.info)(stream, &mut status, &mut graph) };
    device
        .api
        .check("aclmdlRICaptureGetInfo", code)
        .map_err(|error| device.located(error))?;
    Ok((status != CAPTURE_NONE).then_some(Capture {
        id: graph as u64,
        valid: status == CAPTURE_ACTIVE,
    }))
}

/// Ends the capture that began on a stream, whose context is current.
pub(super) fn end(device: &Arc<Device>, stream: Handle) -> Result<AscendGraph> {
    let functions = Functions::of(device.api)?;
    let mut handle = null_mut();
    // SAFETY: a live stream, and a valid output.
    let code = unsafe { (functions.end)(stream, &mut handle) };
    let outcome = device.api.check("aclmdlRICaptureEnd", code);
    // There was no capture to end, or it goes on, because another thread began it, or another stream is its first.
    let goes_on = code == STREAM_NOT_CAPTURED || matches!(capture(device, stream), Ok(Some(_)));
    if !goes_on {
        ended(device);
    }
    outcome.map_err(|error| device.located(error))?;
    Ok(AscendGraph {
        device: Arc::clone(device),
        handle,
        runs: Mutex::default(),
    })
}

/// Captured work.
pub(super) struct AscendGraph {
    device: Arc<Device>,
    handle: Handle,
    /// The streams on which the graph was run, each with the event behind the last run.
    runs: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: the runtime's handles may be used from every thread.
unsafe impl Send for AscendGraph {}
// SAFETY: as above.
unsafe impl Sync for AscendGraph {}

impl AscendGraph {
    pub(super) fn from_dyn<'g>(graph: &'g dyn Graph, device: &Device) -> Result<&'g Self> {
        let found: Option<&Self> = graph.as_any().downcast_ref();
        let found = found.ok_or_else(|| {
            Error::invalid_argument("replay", "the graph belongs to another vendor")
        })?;
        if found.device.index == device.index {
            return Ok(found);
        }
        let message = format!(
            "a graph of device {} was run on a stream of device {}",
            found.device.index, device.index
        );
        Err(Error::invalid_argument("replay", message)
            .with_hint("run it on a stream of its device"))
    }

    /// Queues a run on a stream, whose context is current and which is not captured.
    ///
    /// # Safety
    /// The stream is live, and the memory of the graph stays valid until it has run.
    pub(super) unsafe fn run(&self, stream: Handle) -> Result<()> {
        let device = &self.device;
        let functions = Functions::of(device.api)?;
        let mut runs = self.runs.lock();
        let known = runs.iter().position(|(known, _)| *known == stream as usize);
        let place = match known {
            Some(place) => place,
            None => {
                let event = device.new_event(false);
                let event = event.map_err(|error| device.located(error))?;
                runs.push((stream as usize, event as usize));
                runs.len() - 1
            }
        };
        // SAFETY: a live graph, and the caller's promise.
        let code = unsafe { (functions.execute)(self.handle, stream) };
        device
            .api
            .check("aclmdlRIExecuteAsync", code)
            .map_err(|error| device.located(error))?;
        // SAFETY: a live event and a live stream of one context.
        let code = unsafe { (device.api.aclrtRecordEvent)(runs[place].1 as Handle, stream) };
        device
            .api
            .check("aclrtRecordEvent", code)
            .map_err(|error| device.located(error))
    }
}

impl Graph for AscendGraph {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for AscendGraph {
    /// Destroys the graph when its runs have ended.
    fn drop(&mut self) {
        let runs = std::mem::take(self.runs.get_mut());
        let events = runs.into_iter().map(|(_, event)| event).collect();
        self.device.discard(Discarded::Graph(self.handle, events));
    }
}
