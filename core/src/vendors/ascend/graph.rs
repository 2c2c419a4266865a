//! Graphs: the work of streams, captured by the functions `aclmdlRI*`.
//!
//! A capture takes streams of the hardware, of which a graph keeps some for as long as it lives. During a capture the
//! runtime allows no wait for the device. So what has to be destroyed or freed stays until the capture has ended.

use std::any::Any;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{Capture, CaptureMode, Graph};

use super::api::{Api, Code, Handle, CAPTURE_ACTIVE, CAPTURE_NONE, RECORD_COMPLETE, SUCCESS};
use super::device::{Device, Discarded};
use super::driver;
use super::error::{check, STREAM_NOT_CAPTURED};
use super::event::take_handle;

/// The functions of graphs, of a runtime that has all of them.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    begin: unsafe extern "C" fn(Handle, i32) -> Code,
    info: unsafe extern "C" fn(Handle, *mut i32, *mut Handle) -> Code,
    end: unsafe extern "C" fn(Handle, *mut Handle) -> Code,
    execute: unsafe extern "C" fn(Handle, Handle) -> Code,
    destroy: unsafe extern "C" fn(Handle) -> Code,
}

impl Functions {
    /// The functions. Fails with the names of those that the runtime does not have.
    pub(super) fn of(api: &Api) -> Result<Self> {
        match (
            api.aclmdlRICaptureBegin,
            api.aclmdlRICaptureGetInfo,
            api.aclmdlRICaptureEnd,
            api.aclmdlRIExecuteAsync,
            api.aclmdlRIDestroy,
        ) {
            (Some(begin), Some(info), Some(end), Some(execute), Some(destroy)) => Ok(Self {
                begin,
                info,
                end,
                execute,
                destroy,
            }),
            _ => Err(missing(api)),
        }
    }
}

#[cold]
fn missing(api: &Api) -> Error {
    let known = [
        ("aclmdlRICaptureBegin", api.aclmdlRICaptureBegin.is_some()),
        (
            "aclmdlRICaptureGetInfo",
            api.aclmdlRICaptureGetInfo.is_some(),
        ),
        ("aclmdlRICaptureEnd", api.aclmdlRICaptureEnd.is_some()),
        ("aclmdlRIExecuteAsync", api.aclmdlRIExecuteAsync.is_some()),
        ("aclmdlRIDestroy", api.aclmdlRIDestroy.is_some()),
    ];
    let names = known.iter().filter(|(_, found)| !found);
    let names: Vec<_> = names.map(|(name, _)| *name).collect();
    let message = format!("{} has no {}", driver::SONAME, names.join(", "));
    Error::unsupported("capture", message).with_hint("install CANN 8.1 or newer")
}

/// The refusal of a call that would wait for captured work.
#[cold]
pub(super) fn refused(operation: &'static str, message: &str) -> Error {
    Error::unsupported(operation, message).with_hint("do it before the capture, or after it")
}

/// The captures of the process that go on.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

fn begun(device: &Device) {
    CAPTURES.fetch_add(1, Ordering::SeqCst);
    device.captures.fetch_add(1, Ordering::SeqCst);
}

fn ended(device: &Device) {
    device.captures.fetch_sub(1, Ordering::SeqCst);
    CAPTURES.fetch_sub(1, Ordering::SeqCst);
}

/// While it lives, this thread may make calls of which the runtime takes for granted that they disturb a capture, wherever
/// it goes on. They do not: they are for other streams.
pub(super) struct Undisturbing<'a> {
    api: &'a Api,
    before: Option<i32>,
    /// Keeps the guard on its thread.
    _thread: PhantomData<*const ()>,
}

/// The guard for calls that this vendor has found harmless. A context is current.
pub(super) fn undisturbing(api: &Api) -> Undisturbing<'_> {
    let mut before = None;
    if CAPTURES.load(Ordering::SeqCst) != 0 {
        before = exchange(api, CaptureMode::Relaxed as i32);
    }
    Undisturbing {
        api,
        before,
        _thread: PhantomData,
    }
}

/// Sets the mode of this thread, and returns the one before.
fn exchange(api: &Api, mut mode: i32) -> Option<i32> {
    let exchange = api.aclmdlRICaptureThreadExchangeMode?;
    // SAFETY: a mode, and a valid output.
    let code = unsafe { exchange(&mut mode) };
    if code != SUCCESS {
        drop(api.recent_error());
    }
    (code == SUCCESS).then_some(mode)
}

impl Drop for Undisturbing<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            exchange(self.api, before);
        }
    }
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
    check(device.api, "aclmdlRICaptureBegin", code).map_err(|error| {
        ended(device);
        let error = device.located(error);
        match NO_GRAPHS.contains(&code) {
            true => Error::new(ErrorKind::Unsupported, "begin_capture", error.to_string()),
            false => error,
        }
    })
}

/// The capture that a stream, whose context is current, belongs to.
pub(super) fn capture(device: &Device, stream: Handle) -> Result<Option<Capture>> {
    let functions = Functions::of(device.api)?;
    let (mut status, mut graph) = (CAPTURE_NONE, null_mut());
    // SAFETY: a live stream, and valid outputs.
    let code = unsafe { (functions.info)(stream, &mut status, &mut graph) };
    check(device.api, "aclmdlRICaptureGetInfo", code).map_err(|error| device.located(error))?;
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
    let outcome = check(device.api, "aclmdlRICaptureEnd", code);
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
                runs.push((stream as usize, take_handle(device, false)? as usize));
                runs.len() - 1
            }
        };
        // SAFETY: a live graph, and the caller's promise.
        let code = unsafe { (functions.execute)(self.handle, stream) };
        check(device.api, "aclmdlRIExecuteAsync", code).map_err(|error| device.located(error))?;
        // SAFETY: a live event and a live stream of one context.
        let code = unsafe { (device.api.aclrtRecordEvent)(runs[place].1 as Handle, stream) };
        check(device.api, "aclrtRecordEvent", code).map_err(|error| device.located(error))
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

/// Destroys a graph, whose context is current; false while a run has not ended, behind which these events are.
///
/// # Safety
/// The graph and the events are live and have no other user.
pub(super) unsafe fn destroy(device: &Device, graph: Handle, runs: &[usize]) -> Result<bool> {
    let functions = Functions::of(device.api)?;
    for event in runs {
        let mut status = RECORD_COMPLETE;
        // SAFETY: a live event, and a valid output.
        let code = unsafe { (device.api.aclrtQueryEventStatus)(*event as Handle, &mut status) };
        if code == SUCCESS && status != RECORD_COMPLETE {
            return Ok(false);
        }
        if code != SUCCESS {
            // After a failure nothing runs any more.
            drop(device.api.recent_error());
        }
    }
    // SAFETY: a live graph of which no run is left.
    let code = unsafe { (functions.destroy)(graph) };
    for event in runs {
        device.keep_event(false, *event as Handle);
    }
    check(device.api, "aclmdlRIDestroy", code)?;
    Ok(true)
}
