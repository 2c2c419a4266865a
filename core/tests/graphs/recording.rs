//! The host vendor with graphs, which the real one does not have: captured copies are kept, and queued at each replay. A
//! flaw is one that the conformance suite must notice.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flagos_core::env::HostSettings;
use flagos_core::runtime::{
    Capture, CaptureMode, DeviceProperties, Event, Graph, HostFn, MemoryInfo, Stream, Vendor,
};
use flagos_core::vendors::host::HostVendor;
use flagos_core::{Error, Result};

/// What is wrong with a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Captured work runs at once, too.
    RunsAtOnce,
    /// A replay runs what was captured first, and nothing else.
    ForgetsTheRest,
    /// Streams that wait for a captured event do not join.
    NobodyJoins,
    /// A capture ends although a stream has not come back.
    EndsUnjoined,
    /// A capture that fails does not end.
    StaysCaptured,
    /// A captured stream is waited for.
    Waits,
    /// Ordinary memory is captured.
    TakesOrdinaryMemory,
    /// A call that is refused makes the capture invalid.
    RefusalInvalidates,
}

/// Every flaw, with the check that notices it.
pub const FLAWS: [(Flaw, &str); 8] = [
    (Flaw::RunsAtOnce, "captured-work-is-replayed"),
    (Flaw::ForgetsTheRest, "captured-work-is-replayed"),
    (Flaw::NobodyJoins, "streams-join-a-capture"),
    (Flaw::EndsUnjoined, "streams-join-a-capture"),
    (Flaw::StaysCaptured, "streams-join-a-capture"),
    (Flaw::Waits, "a-capture-refuses-waits"),
    (Flaw::TakesOrdinaryMemory, "a-capture-refuses-waits"),
    (Flaw::RefusalInvalidates, "a-capture-refuses-waits"),
];

/// A copy: to, from, bytes.
type Item = (usize, usize, usize);

/// A capture that goes on. Streams go by their numbers.
struct Active {
    id: u64,
    valid: bool,
    origin: usize,
    items: Vec<Item>,
    sequence: u64,
    /// For each stream the place of its last work.
    last: HashMap<usize, u64>,
    /// For each stream the streams whose work comes before what it queues next.
    before: HashMap<usize, HashSet<usize>>,
}

#[derive(Default)]
struct State {
    captures: u64,
    streams: usize,
    active: Vec<Active>,
    /// Memory that stays: addresses and sizes.
    known: Vec<(usize, usize)>,
}

impl State {
    fn capture_of(&mut self, stream: usize) -> Option<&mut Active> {
        let mut active = self.active.iter_mut();
        active.find(|active| active.last.contains_key(&stream))
    }
}

struct Shared {
    state: Mutex<State>,
    flaw: Flaw,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails while the stream is captured, or with no stream while any is.
    fn refuse(&self, operation: &'static str, stream: Option<usize>) -> Result<()> {
        let mut state = self.state();
        let found = match stream {
            Some(stream) => state.capture_of(stream),
            None => state.active.first_mut(),
        };
        let Some(active) = found else { return Ok(()) };
        if self.flaw == Flaw::Waits {
            return Ok(());
        }
        if self.flaw == Flaw::RefusalInvalidates {
            active.valid = false;
        }
        Err(Error::unsupported(operation, "not during a capture"))
    }
}

/// The vendor.
pub struct Recording {
    host: HostVendor,
    shared: Arc<Shared>,
}

impl Recording {
    pub fn new(flaw: Flaw, settings: &HostSettings) -> Self {
        Self {
            host: HostVendor::new(settings, Box::leak(Box::default())),
            shared: Arc::new(Shared {
                state: Mutex::default(),
                flaw,
            }),
        }
    }

    fn wrap(&self, inner: Arc<dyn Stream>) -> Arc<dyn Stream> {
        let mut state = self.shared.state();
        state.streams += 1;
        Arc::new(RecordingStream {
            inner,
            number: state.streams,
            shared: Arc::clone(&self.shared),
        })
    }

    fn note(&self, address: NonNull<u8>, nbytes: usize) -> NonNull<u8> {
        let mut state = self.shared.state();
        state.known.push((address.as_ptr() as usize, nbytes));
        address
    }

    fn forget(&self, address: NonNull<u8>) {
        let mut state = self.shared.state();
        state
            .known
            .retain(|(known, _)| *known != address.as_ptr() as usize);
    }
}

impl Vendor for Recording {
    fn name(&self) -> &'static str {
        "recording"
    }
    fn device_count(&self) -> usize {
        1
    }
    fn properties(&self, device: usize) -> Result<DeviceProperties> {
        self.host.properties(device)
    }
    fn memory(&self, device: usize) -> Result<MemoryInfo> {
        self.host.memory(device)
    }
    fn alloc(&self, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        Ok(self.note(self.host.alloc(device, nbytes)?, nbytes))
    }
    unsafe fn free(&self, device: usize, address: NonNull<u8>, nbytes: usize) {
        self.forget(address);
        // SAFETY: the caller's promise.
        unsafe { self.host.free(device, address, nbytes) }
    }
    fn pinned_alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        Ok(self.note(self.host.pinned_alloc(nbytes)?, nbytes))
    }
    unsafe fn pinned_free(&self, address: NonNull<u8>, nbytes: usize) {
        self.forget(address);
        // SAFETY: the caller's promise.
        unsafe { self.host.pinned_free(address, nbytes) }
    }
    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        Ok(self.wrap(self.host.default_stream(device)?))
    }
    fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>> {
        Ok(self.wrap(self.host.stream(device, priority)?))
    }
    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(RecordingEvent {
            inner: self.host.event(device, timing)?,
            mark: Mutex::new(None),
        }))
    }
    fn device_sync(&self, device: usize) -> Result<()> {
        self.shared.refuse("device_sync", None)?;
        self.host.device_sync(device)
    }
    fn quiesce(&self, device: usize) -> Result<()> {
        self.shared.refuse("quiesce", None)?;
        self.host.quiesce(device)
    }
    fn in_stream_work(&self) -> bool {
        self.host.in_stream_work()
    }
    fn pending(&self) -> &AtomicU64 {
        self.host.pending()
    }
    fn captures(&self) -> Result<()> {
        Ok(())
    }
}

struct RecordingStream {
    inner: Arc<dyn Stream>,
    number: usize,
    shared: Arc<Shared>,
}

impl RecordingStream {
    /// Whether the copy has become a part of a graph.
    fn captured(&self, item: Item) -> Result<bool> {
        let mut state = self.shared.state();
        let stays = |address: usize| {
            let mut known = state.known.iter();
            known.any(|(start, nbytes)| (*start..start + nbytes).contains(&address))
        };
        let stays =
            (stays(item.0) && stays(item.1)) || self.shared.flaw == Flaw::TakesOrdinaryMemory;
        let Some(active) = state.capture_of(self.number) else {
            return Ok(false);
        };
        if !stays {
            drop(state);
            self.shared.refuse("copy", Some(self.number))?;
            return Ok(true);
        }
        active.items.push(item);
        active.sequence += 1;
        active.last.insert(self.number, active.sequence);
        for (stream, before) in &mut active.before {
            if *stream != self.number {
                before.remove(&self.number);
            }
        }
        Ok(self.shared.flaw != Flaw::RunsAtOnce)
    }
}

impl Stream for RecordingStream {
    fn device(&self) -> usize {
        self.inner.device()
    }
    fn query(&self) -> Result<bool> {
        self.shared.refuse("query", Some(self.number))?;
        self.inner.query()
    }
    fn is_idle(&self) -> bool {
        self.shared.state().capture_of(self.number).is_none() && self.inner.is_idle()
    }
    fn sync(&self) -> Result<()> {
        self.shared.refuse("sync", Some(self.number))?;
        self.inner.sync()
    }
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        if self.captured((dst as usize, src as usize, nbytes))? {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy(dst, src, nbytes) }
    }
    unsafe fn launch(&self, function: HostFn, context: *mut c_void) -> Result<()> {
        self.shared.refuse("launch", Some(self.number))?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch(function, context) }
    }
    fn record(&self, event: &dyn Event) -> Result<()> {
        let event: &RecordingEvent = event.as_any().downcast_ref().expect("of this vendor");
        let mut state = self.shared.state();
        let mark = state.capture_of(self.number).map(|active| {
            let mut before = active.before[&self.number].clone();
            before.insert(self.number);
            (active.id, active.sequence, before)
        });
        let captured = mark.is_some();
        *event.mark.lock().expect("not poisoned") = mark;
        if captured {
            Ok(())
        } else {
            self.inner.record(&*event.inner)
        }
    }
    fn wait(&self, event: &dyn Event) -> Result<()> {
        let event: &RecordingEvent = event.as_any().downcast_ref().expect("of this vendor");
        let mark = event.mark.lock().expect("not poisoned").clone();
        let Some((id, sequence, before)) = mark else {
            return self.inner.wait(&*event.inner);
        };
        if self.shared.flaw == Flaw::NobodyJoins {
            return Ok(());
        }
        let mut state = self.shared.state();
        let found = state.active.iter_mut().find(|active| active.id == id);
        let active = found.ok_or_else(|| Error::device("wait", "the capture has ended"))?;
        if !active.last.contains_key(&self.number) {
            active.sequence += 1;
            active.last.insert(self.number, active.sequence);
            active.before.insert(self.number, HashSet::new());
        }
        let still = before
            .into_iter()
            .filter(|stream| active.last[stream] <= sequence);
        let still: Vec<_> = still.collect();
        active
            .before
            .get_mut(&self.number)
            .expect("it has joined")
            .extend(still);
        Ok(())
    }
    fn begin_capture(&self, _: CaptureMode) -> Result<()> {
        let mut state = self.shared.state();
        if state.capture_of(self.number).is_some() {
            return Err(Error::invalid_argument("begin_capture", "captured already"));
        }
        state.captures += 1;
        let id = state.captures;
        state.active.push(Active {
            id,
            valid: true,
            origin: self.number,
            items: Vec::new(),
            sequence: 0,
            last: HashMap::from([(self.number, 0)]),
            before: HashMap::from([(self.number, HashSet::new())]),
        });
        Ok(())
    }
    fn capture(&self) -> Result<Option<Capture>> {
        let mut state = self.shared.state();
        Ok(state.capture_of(self.number).map(|active| Capture {
            id: active.id,
            valid: active.valid,
        }))
    }
    fn end_capture(&self) -> Result<Arc<dyn Graph>> {
        let mut state = self.shared.state();
        let mine = |active: &Active| active.origin == self.number;
        let place = state.active.iter().position(mine);
        let place = place.ok_or_else(|| Error::invalid_argument("end_capture", "no capture"))?;
        let active = &state.active[place];
        let before = &active.before[&self.number];
        let mut others = active.last.keys().filter(|stream| **stream != self.number);
        let joined = others.all(|stream| before.contains(stream));
        if !joined && self.shared.flaw == Flaw::StaysCaptured {
            return Err(Error::device("end_capture", "not joined"));
        }
        let mut active = state.active.remove(place);
        if !active.valid {
            return Err(Error::device("end_capture", "invalid"));
        }
        if !joined && self.shared.flaw != Flaw::EndsUnjoined {
            return Err(Error::device("end_capture", "not joined"));
        }
        if self.shared.flaw == Flaw::ForgetsTheRest {
            active.items.truncate(1);
        }
        Ok(Arc::new(Recorded(active.items)))
    }
    unsafe fn replay(&self, graph: &dyn Graph) -> Result<()> {
        self.shared.refuse("replay", Some(self.number))?;
        let graph: &Recorded = graph.as_any().downcast_ref().expect("of this vendor");
        for (to, from, nbytes) in &graph.0 {
            // SAFETY: the caller's promise.
            unsafe { self.inner.copy(*to as *mut u8, *from as *const u8, *nbytes) }?;
        }
        Ok(())
    }
}

struct Recorded(Vec<Item>);

impl Graph for Recorded {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct RecordingEvent {
    inner: Arc<dyn Event>,
    /// Of a record in a capture: its number, the place there, and the streams whose work is before it.
    mark: Mutex<Option<(u64, u64, HashSet<usize>)>>,
}

impl RecordingEvent {
    fn refuse(&self, operation: &'static str) -> Result<()> {
        match *self.mark.lock().expect("not poisoned") {
            Some(_) => Err(Error::unsupported(operation, "recorded in a capture")),
            None => Ok(()),
        }
    }
}

impl Event for RecordingEvent {
    fn query(&self) -> Result<bool> {
        self.refuse("event_query")?;
        self.inner.query()
    }
    fn sync(&self) -> Result<()> {
        self.refuse("event_sync")?;
        self.inner.sync()
    }
    fn elapsed_ms(&self, end: &dyn Event) -> Result<f64> {
        let end: &Self = end.as_any().downcast_ref().expect("of this vendor");
        self.inner.elapsed_ms(&*end.inner)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
