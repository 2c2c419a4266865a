//! A host vendor with one flaw, which the suite must notice.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use flagos_core::Result;
use flagos_core::env::HostSettings;
use flagos_core::runtime::{
    ALIGNMENT, DeviceProperties, Event, HostFn, MemoryInfo, Stream, Vendor,
};
use flagos_core::vendors::host::HostVendor;
use flagos_vendor_kit::conformance::{self, Outcome};

/// The flaw of a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// No flaw, so that the wrapping itself is tested.
    None,
    /// Streams do not wait for events.
    IgnoresWaits,
    /// A wait waits for the work that the event stands for when the wait runs, and not when it was queued.
    WaitsLate,
    /// Events are always finished.
    EventsAlwaysDone,
    /// Streams do not wait in `sync`.
    SyncReturns,
    /// `device_sync` and `quiesce` wait for the default stream only.
    SyncsOneStream,
    /// All streams are the same stream.
    OneStream,
    /// Each call for the default stream makes a new stream.
    ManyDefaults,
    /// The last byte of a copy is missing.
    ShortCopies,
    /// Addresses are off by 8.
    Misaligned,
    /// Every allocation is the same memory.
    SameMemory,
    /// The free memory does not change.
    CountsNothing,
    /// There is always more memory.
    NoLimit,
    /// Unfinished work is not counted.
    PendingIsZero,
    /// Unfinished work is counted, although the vendor says that the host does not compute.
    PendingIsIdle,
    /// Times have no sign.
    TimeHasNoSign,
    /// Work running on a stream is not recognised.
    WorkIsUnknown,
}

/// Every flaw, with the check that notices it.
pub const FLAWS: [(Flaw, &str); 16] = [
    (Flaw::IgnoresWaits, "wait-orders-streams"),
    (Flaw::WaitsLate, "wait-keeps-its-point"),
    (Flaw::EventsAlwaysDone, "event-follows-its-stream"),
    (Flaw::SyncReturns, "sync-waits"),
    (Flaw::SyncsOneStream, "device-sync-waits"),
    (Flaw::OneStream, "default-stream-is-one"),
    (Flaw::ManyDefaults, "default-stream-is-one"),
    (Flaw::ShortCopies, "copies-arrive"),
    (Flaw::Misaligned, "memory-is-disjoint"),
    (Flaw::SameMemory, "memory-is-disjoint"),
    (Flaw::CountsNothing, "memory-is-accounted-for"),
    (Flaw::NoLimit, "too-much-is-refused"),
    (Flaw::PendingIsZero, "pending-is-exact"),
    (Flaw::PendingIsIdle, "pending-is-exact"),
    (Flaw::TimeHasNoSign, "time-passes-between-events"),
    (Flaw::WorkIsUnknown, "work-knows-that-it-is-work"),
];

pub struct Broken {
    host: HostVendor,
    flaw: Flaw,
    zero: AtomicU64,
    shared: NonNull<u8>,
    one: Arc<dyn Stream>,
}

// SAFETY: `shared` is memory that is only handed out.
unsafe impl Send for Broken {}
// SAFETY: as above.
unsafe impl Sync for Broken {}

impl Broken {
    /// The vendor with this flaw, which counts unfinished work in `pending`.
    pub fn new(flaw: Flaw, pending: &'static AtomicU64) -> Self {
        let host = HostVendor::new(&HostSettings::default(), pending);
        let shared = host.alloc(0, 64 << 20).expect("memory");
        let one = host.stream(0, 0).expect("a stream");
        Self {
            host,
            flaw,
            zero: AtomicU64::new(0),
            shared,
            one,
        }
    }

    fn wrap(&self, inner: Arc<dyn Stream>) -> Arc<dyn Stream> {
        Arc::new(BrokenStream {
            inner,
            flaw: self.flaw,
        })
    }
}

impl Vendor for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }
    fn device_count(&self) -> usize {
        self.host.device_count()
    }
    fn properties(&self, device: usize) -> Result<DeviceProperties> {
        self.host.properties(device)
    }
    fn memory(&self, device: usize) -> Result<MemoryInfo> {
        let info = self.host.memory(device)?;
        Ok(match self.flaw {
            Flaw::CountsNothing => MemoryInfo {
                free: info.total,
                ..info
            },
            _ => info,
        })
    }
    fn alloc(&self, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        match self.flaw {
            Flaw::SameMemory if device == 0 && nbytes <= 64 << 20 => Ok(self.shared),
            Flaw::NoLimit if device == 0 && nbytes > 64 << 30 => Ok(self.shared),
            Flaw::Misaligned => {
                let start = self.host.alloc(device, nbytes + ALIGNMENT)?;
                // SAFETY: within the allocation.
                Ok(unsafe { start.add(8) })
            }
            _ => self.host.alloc(device, nbytes),
        }
    }
    unsafe fn free(&self, device: usize, address: NonNull<u8>, nbytes: usize) {
        match self.flaw {
            Flaw::SameMemory => {}
            // SAFETY: the inverse of `alloc`.
            Flaw::Misaligned => unsafe {
                self.host.free(device, address.sub(8), nbytes + ALIGNMENT);
            },
            // SAFETY: the caller's promise.
            _ => unsafe { self.host.free(device, address, nbytes) },
        }
    }
    fn pinned_alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        self.host.pinned_alloc(nbytes)
    }
    unsafe fn pinned_free(&self, address: NonNull<u8>, nbytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.host.pinned_free(address, nbytes) };
    }
    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        match self.flaw {
            Flaw::ManyDefaults | Flaw::OneStream => self.stream(device, 0),
            _ => Ok(self.wrap(self.host.default_stream(device)?)),
        }
    }
    fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>> {
        match self.flaw {
            Flaw::OneStream if device == 0 => Ok(self.wrap(Arc::clone(&self.one))),
            _ => Ok(self.wrap(self.host.stream(device, priority)?)),
        }
    }
    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        let inner = self.host.event(device, timing)?;
        Ok(Arc::new(BrokenEvent {
            inner,
            flaw: self.flaw,
        }))
    }
    fn device_sync(&self, device: usize) -> Result<()> {
        match self.flaw {
            Flaw::SyncsOneStream => self.host.default_stream(device)?.sync(),
            _ => self.host.device_sync(device),
        }
    }
    fn quiesce(&self, device: usize) -> Result<()> {
        self.host.quiesce(device)
    }
    fn in_stream_work(&self) -> bool {
        self.flaw != Flaw::WorkIsUnknown && self.host.in_stream_work()
    }
    fn host_computes(&self) -> bool {
        self.flaw != Flaw::PendingIsIdle && self.host.host_computes()
    }
    fn pending(&self) -> &AtomicU64 {
        match self.flaw {
            Flaw::PendingIsZero => &self.zero,
            _ => self.host.pending(),
        }
    }
}

struct BrokenStream {
    inner: Arc<dyn Stream>,
    flaw: Flaw,
}

impl Stream for BrokenStream {
    fn device(&self) -> usize {
        self.inner.device()
    }
    fn query(&self) -> Result<bool> {
        self.inner.query()
    }
    fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }
    fn sync(&self) -> Result<()> {
        match self.flaw {
            Flaw::SyncReturns => Ok(()),
            _ => self.inner.sync(),
        }
    }
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        let short = usize::from(self.flaw == Flaw::ShortCopies);
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy(dst, src, nbytes.saturating_sub(short)) }
    }
    unsafe fn launch(&self, function: HostFn, context: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch(function, context) }
    }
    fn record(&self, event: &dyn Event) -> Result<()> {
        self.inner.record(inner_event(event))
    }
    fn wait(&self, event: &dyn Event) -> Result<()> {
        match self.flaw {
            Flaw::IgnoresWaits => Ok(()),
            Flaw::WaitsLate => {
                let event = event.as_any().downcast_ref::<BrokenEvent>().expect("ours");
                let event = Arc::clone(&event.inner);
                let late = move || while !event.query().unwrap_or(true) {};
                flagos_core::runtime::launch_closure(&*self.inner, late)
            }
            _ => self.inner.wait(inner_event(event)),
        }
    }
}

struct BrokenEvent {
    inner: Arc<dyn Event>,
    flaw: Flaw,
}

fn inner_event(event: &dyn Event) -> &dyn Event {
    &*event
        .as_any()
        .downcast_ref::<BrokenEvent>()
        .expect("made by the same vendor")
        .inner
}

impl Event for BrokenEvent {
    fn query(&self) -> Result<bool> {
        Ok(self.flaw == Flaw::EventsAlwaysDone || self.inner.query()?)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn elapsed_ms(&self, end: &dyn Event) -> Result<f64> {
        let elapsed = self.inner.elapsed_ms(inner_event(end))?;
        Ok(if self.flaw == Flaw::TimeHasNoSign {
            elapsed.abs()
        } else {
            elapsed
        })
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The outcome of this check, over a vendor with a flaw on which others may hang.
pub fn outcome(check: &str, vendor: &dyn Vendor) -> Outcome {
    let check = conformance::named(check).expect("the check is in the suite");
    check.run(vendor, Duration::from_secs(20))
}
