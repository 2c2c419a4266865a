//! A device and its default context, the one that torch_npu, HCCL and every user of `aclrtSetDevice` share.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::DeviceProperties;
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{DriverDevice, Peers, Process};

use super::api::{Api, Handle, OVERFLOW_TO_INFINITY, STREAM_COMPLETE, SUCCESS};
use super::captures::{self, refused};
use super::driver::PROCESS;
use super::error::means_lost;
use super::memory::Memory;
use super::reporter::Reporter;
use super::visible;

/// How often a wait for the device is repeated, each time after another failure of queued work.
const MOST_FAILURES: usize = 8;
/// The most events that wait for reuse after the device has been synchronised.
const MOST_EVENTS: usize = 256;

/// One device. Streams and events keep it alive.
pub(super) struct Device {
    pub(super) api: &'static Api,
    /// The device's number, which is also the runtime's.
    pub(super) index: usize,
    /// The default context; null until the first use. It is never given back, because other libraries may rely on it.
    context: AtomicPtr<c_void>,
    starting: Mutex<()>,
    pub(super) properties: OnceLock<DeviceProperties>,
    /// The allocations of all devices.
    pub(super) memory: Arc<Memory>,
    pub(super) peers: Peers,
    /// All devices of the vendor, this one too.
    pub(super) siblings: OnceLock<Box<[Weak<Device>]>>,
    discarded: Mutex<Vec<Discarded>>,
    /// Events for reuse: without a time, and with one. A wait that is queued keeps the record that it was given, so an
    /// event may be recorded again at once, while it may only be destroyed when no queued work refers to it.
    events: [Mutex<Vec<Event>>; 2],
    reporter: OnceLock<Reporter>,
    /// The captures that go on, while which nothing waits for the device.
    pub(super) captures: AtomicUsize,
    /// The keys of memory that other processes may import, by the address that the runtime gave.
    pub(super) exported: Mutex<HashMap<usize, CString>>,
    /// The failure after which the device is lost: every later call fails with it.
    lost: OnceLock<Error>,
    /// The failure of queued work that only a wait of this vendor's own has seen.
    unreported: Mutex<Option<Error>>,
}

/// An event that nobody owns.
#[derive(Clone, Copy)]
struct Event(Handle);

// SAFETY: the runtime's handles may be used from every thread.
unsafe impl Send for Event {}

/// A handle or memory to give back to the runtime: when the device no longer uses it, not during a capture, and not in work
/// running on a stream, which must not call the runtime.
pub(super) enum Discarded {
    /// A stream, the thread it is subscribed to, and whether it is to be destroyed.
    Stream(Handle, Option<u64>, bool),
    /// A graph, and the events behind its runs.
    Graph(Handle, Vec<usize>),
    Memory(*mut c_void),
    Pinned(*mut c_void),
}

// SAFETY: the runtime's handles may be used from every thread; these are used once.
unsafe impl Send for Discarded {}

/// The context of this thread; null if there is none.
fn current(api: &Api) -> Handle {
    let mut context = null_mut();
    // SAFETY: a valid output.
    let code = unsafe { (api.aclrtGetCurrentContext)(&mut context) };
    if code != SUCCESS {
        // No failure of anybody: its text must not be taken for the next one's.
        drop(api.recent_error());
        return null_mut();
    }
    context
}

/// The error of a call on a lost device: that of the failure, so that it is recognised, and the call.
#[cold]
fn lost(operation: &'static str, failure: &Error) -> Error {
    let message = format!(
        "the device was lost: {}: {}",
        failure.operation(),
        failure.message()
    );
    let error = Error::device(operation, message).with_hint("restart the process");
    match failure.context("device") {
        Some(device) => error.with_context("device", device),
        None => error,
    }
}

/// Has floating-point numbers overflow to infinity, as those of other devices do, in streams that are made from now on.
/// Chips that cannot keep what they do.
fn overflow_to_infinity(api: &Api) {
    let Some(set) = api.aclrtSetDeviceSatMode else {
        return;
    };
    // SAFETY: a device has just been set on this thread.
    if let Err(error) = api.check("aclrtSetDeviceSatMode", unsafe {
        set(OVERFLOW_TO_INFINITY)
    }) {
        tracing::debug!(%error, "numbers that overflow become the largest one");
    }
}

impl Device {
    pub(super) fn new(api: &'static Api, index: usize, count: usize, memory: Arc<Memory>) -> Self {
        Self {
            api,
            index,
            context: AtomicPtr::default(),
            starting: Mutex::new(()),
            properties: OnceLock::new(),
            memory,
            peers: Peers::new(index, count),
            siblings: OnceLock::new(),
            discarded: Mutex::default(),
            events: Default::default(),
            reporter: OnceLock::new(),
            captures: AtomicUsize::new(0),
            exported: Mutex::default(),
            lost: OnceLock::new(),
            unreported: Mutex::new(None),
        }
    }

    /// The device's number, for the runtime.
    pub(super) fn raw(&self) -> i32 {
        i32::try_from(self.index).unwrap_or(i32::MAX)
    }

    /// Another device of the vendor, or this one.
    pub(super) fn sibling(&self, index: usize) -> Option<Arc<Self>> {
        self.siblings.get()?.get(index)?.upgrade()
    }

    /// The default context, which the first call creates and makes current.
    fn context(&self) -> Result<Handle> {
        let context = self.context.load(Ordering::Acquire);
        if !context.is_null() {
            return Ok(context);
        }
        self.start()
    }

    #[cold]
    fn start(&self) -> Result<Handle> {
        let _one_at_a_time = self.starting.lock();
        let mut context = self.context.load(Ordering::Acquire);
        if context.is_null() {
            // SAFETY: a device that was counted, and a valid output.
            unsafe {
                call!(self.api, aclrtSetDevice(self.raw()))
                    .and_then(|()| call!(self.api, aclrtGetCurrentContext(&mut context)))
            }
            .map_err(|error| self.located(error))?;
            overflow_to_infinity(self.api);
            self.context.store(context, Ordering::Release);
        }
        Ok(context)
    }

    /// Fails on a device that is lost.
    #[inline]
    fn refuse_lost(&self, operation: &'static str) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(failure) => Err(lost(operation, failure)),
        }
    }

    /// The result of `ask` with the device set on this thread. A device that is not in use is given back afterwards, so
    /// that describing all devices starts none of them for good.
    pub(super) fn visit<R>(&self, ask: impl FnOnce() -> Result<R>) -> Result<R> {
        Self::refuse("properties")?;
        if self.is_used() {
            let _entered = self.enter("properties")?;
            return ask();
        }
        let before = current(self.api);
        // SAFETY: a device that was counted, set and given back once.
        let answer = unsafe {
            call!(self.api, aclrtSetDevice(self.raw())).map_err(|error| self.located(error))?;
            let answer = ask();
            call!(self.api, aclrtResetDevice(self.raw())).map_err(|error| self.located(error))?;
            answer
        };
        if !before.is_null() {
            // SAFETY: what was current a moment ago on this thread.
            unsafe { call!(self.api, aclrtSetCurrentContext(before)) }?;
        }
        answer
    }

    /// Whether a stream of the device is being captured.
    #[inline]
    pub(super) fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::SeqCst) != 0
    }

    /// Fails while a stream of the device is being captured, when nobody may wait for the device.
    pub(super) fn refuse_in_capture(&self, operation: &'static str) -> Result<()> {
        if !self.is_capturing() {
            return Ok(());
        }
        let message = "a stream of the device is being captured into a graph, and nobody can wait for the device";
        Err(self.located(refused(operation, message)))
    }

    /// The thread that calls functions for the device's streams. The context is current.
    pub(super) fn reporter(&self) -> Result<&Reporter> {
        if let Some(reporter) = self.reporter.get() {
            return Ok(reporter);
        }
        let _one_at_a_time = self.starting.lock();
        if self.reporter.get().is_none() {
            let context = self.context.load(Ordering::Acquire);
            // Nobody else sets it: see the lock.
            let _ = self.reporter.set(Reporter::start(self.api, context)?);
        }
        self.reporter
            .get()
            .ok_or_else(|| Error::internal("launch", "the reporter was just started"))
    }

    /// Waits for all work queued on the device. A failure of that work is kept for the user, whom it concerns, unless the
    /// device fails again and again.
    pub(super) fn settle(&self, operation: &'static str) -> Result<()> {
        self.refuse_in_capture(operation)?;
        let _entered = self.enter(operation)?;
        let _undisturbing = captures::undisturbing(self.api);
        let mut outcome = Ok(());
        for _ in 0..MOST_FAILURES {
            // SAFETY: the context is current.
            outcome = unsafe { call!(self.api, aclrtSynchronizeDevice()) };
            let Err(error) = &outcome else { break };
            self.unreported
                .lock()
                .get_or_insert_with(|| self.located(error.clone()));
        }
        outcome.map_err(|error| self.located(error))
    }

    /// The result of a wait by which the user learns of failures: also of one that only the vendor has seen.
    pub(super) fn reported(&self, outcome: Result<()>) -> Result<()> {
        let kept = self.unreported.lock().take();
        match (outcome, kept) {
            (_, Some(kept)) => Err(kept),
            (outcome, None) => outcome.map_err(|error| self.located(error)),
        }
    }

    /// Whether a stream, whose context is current, has work left. Not after a failure, when nothing runs any more.
    unsafe fn is_busy(&self, stream: Handle) -> bool {
        let mut status = STREAM_COMPLETE;
        // SAFETY: a live stream, and a valid output.
        let outcome = unsafe { call!(self.api, aclrtStreamQuery(stream, &mut status)) };
        outcome.is_ok() && status != STREAM_COMPLETE
    }

    /// An event that waits for reuse.
    pub(super) fn take_event(&self, timing: bool) -> Option<Handle> {
        self.events[usize::from(timing)]
            .lock()
            .pop()
            .map(|event| event.0)
    }

    /// Keeps an event for reuse.
    pub(super) fn keep_event(&self, timing: bool, event: Handle) {
        self.events[usize::from(timing)].lock().push(Event(event));
    }

    /// Runs `wait`, which waits for all work of the device, and destroys what needs that.
    pub(super) fn synchronize(&self, wait: impl FnOnce() -> Result<()>) -> Result<()> {
        let spare = [0, 1].map(|timing| {
            let mut kept = self.events[timing].lock();
            let count = kept.len().saturating_sub(MOST_EVENTS);
            kept.drain(..count).collect::<Vec<_>>()
        });
        let outcome = wait();
        for (timing, events) in spare.into_iter().enumerate() {
            if outcome.is_err() || self.destroy_events(&events).is_err() {
                self.events[timing].lock().extend(events);
            }
        }
        self.bury();
        outcome
    }

    fn destroy_events(&self, events: &[Event]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let _entered = self.enter("destroy")?;
        for event in events {
            // SAFETY: an event that nobody owns, and to which no queued work refers.
            if let Err(error) = unsafe { call!(self.api, aclrtDestroyEvent(event.0)) } {
                tracing::error!(device = self.index, %error, "an event was not destroyed");
            }
        }
        Ok(())
    }
}

impl DriverDevice for Device {
    const FAMILY: &'static str = "Ascend";
    const LIBRARY: &'static str = "the ACL runtime";
    const VARIABLE: &'static str = visible::VARIABLE;

    type Current = Handle;
    type Discarded = Discarded;

    fn process() -> &'static Process {
        &PROCESS
    }

    #[inline]
    fn index(&self) -> usize {
        self.index
    }

    /// Makes the context current. A thread that had none keeps this one.
    #[inline]
    fn switch(&self, operation: &'static str) -> Result<Option<Handle>> {
        self.refuse_lost(operation)?;
        let before = current(self.api);
        let context = self.context()?;
        if before == context {
            return Ok(None);
        }
        // SAFETY: a context that is never given back.
        unsafe { call!(self.api, aclrtSetCurrentContext(context)) }
            .map_err(|error| self.located(error))?;
        Ok((!before.is_null()).then_some(before))
    }

    fn switch_back(&self, before: Handle) -> Result<()> {
        // SAFETY: what was current a moment ago on this thread.
        unsafe { call!(self.api, aclrtSetCurrentContext(before)) }
    }

    /// Whether the context has been created by us.
    fn is_used(&self) -> bool {
        !self.context.load(Ordering::Acquire).is_null()
    }

    fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Whether a capture goes on.
    fn defers(&self) -> bool {
        self.is_capturing()
    }

    fn discarded(&self) -> &Mutex<Vec<Discarded>> {
        &self.discarded
    }

    fn destroy(&self, item: &Discarded) -> Result<bool> {
        if let Discarded::Memory(_) = item {
            // `aclrtFree` does not wait for the device.
            if self.settle("free").is_err() {
                return Ok(false);
            }
        }
        let _entered = self.enter("destroy")?;
        // SAFETY: callers discard only items that they own, and do not use them afterwards.
        unsafe {
            match *item {
                Discarded::Graph(graph, ref runs) => {
                    let destroyed = captures::destroy(self.api, graph, runs)?;
                    if destroyed {
                        for event in runs {
                            self.keep_event(false, *event as Handle);
                        }
                    }
                    return Ok(destroyed);
                }
                Discarded::Stream(stream, subscribed, owned) => {
                    if self.is_busy(stream) {
                        return Ok(false);
                    }
                    if let Some(thread) = subscribed {
                        call!(self.api, aclrtUnSubscribeReport(thread, stream))?;
                    }
                    if owned {
                        call!(self.api, aclrtDestroyStream(stream))?;
                    }
                }
                Discarded::Memory(address) => {
                    let exported = self.exported.lock().remove(&(address as usize));
                    if let (Some(key), Some(close)) = (exported, self.api.aclrtIpcMemClose) {
                        self.api.check("aclrtIpcMemClose", close(key.as_ptr()))?;
                    }
                    call!(self.api, aclrtFree(address))?;
                }
                Discarded::Pinned(address) => call!(self.api, aclrtFreeHost(address))?,
            }
        }
        Ok(true)
    }

    /// Adds the device to an error, and remembers one after which the device is lost.
    #[cold]
    fn located(&self, error: Error) -> Error {
        let error = match error.context("device") {
            Some(_) => error,
            None => error.with_context("device", self.index),
        };
        if means_lost(error.message()) {
            self.lost.get_or_init(|| error.clone());
        }
        error
    }
}
