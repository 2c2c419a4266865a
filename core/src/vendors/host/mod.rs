//! The host as a device: its memory is ordinary memory, each stream is a thread.
//!
//! Streams run apart from the caller and from each other, events are real, and seeded delays and
//! failures can be injected, so that a missing wait shows without an accelerator. When an item on a
//! stream fails, the items after it still run; the first failure is reported by the next query or
//! sync of the stream, or of the device, and is then forgotten. An event recorded after a failure
//! carries it too, and hands it to the streams that wait for the event.

mod chaos;
mod description;
mod event;
mod machine;
mod memory;
mod queue;
mod recorded;
mod stream;
mod work;

use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::descriptions::Declared;
use crate::env::HostSettings;
use crate::error::{Error, Result};
use crate::runtime::{DeviceProperties, Event, MemoryInfo, Stream, Vendor, sync};

use self::chaos::Chaos;
use self::event::HostEvent;
use self::memory::HostMemory;
use self::stream::{HostStream, LiveStreams};
use super::entry::{BuiltIn, Settings};

inventory::submit! { ENTRY }
inventory::submit! { Declared(description::description) }

/// The host vendor for [`super::built_in`]. Chosen last: every machine has one.
pub const ENTRY: BuiltIn = BuiltIn {
    description: description::description,
    rank: 0,
    survey: |settings| Ok(devices(&settings.host)),
    open: |settings: &Settings, pending| Ok(Arc::new(HostVendor::new(&settings.host, pending))),
    launcher: None,
};

fn devices(settings: &HostSettings) -> usize {
    settings.devices.unwrap_or(1) as usize
}

/// The host vendor.
pub struct HostVendor {
    devices: Box<[HostDevice]>,
    pending: &'static sync::AtomicU64,
    chaos: Chaos,
    pinned: HostMemory,
}

struct HostDevice {
    memory: HostMemory,
    live: Mutex<LiveStreams>,
    default_stream: Arc<HostStream>,
}

impl HostVendor {
    /// Creates the devices of the settings, and starts no thread. Unfinished work is counted in `pending`.
    pub fn new(settings: &HostSettings, pending: &'static sync::AtomicU64) -> Self {
        let chaos = Chaos::new(settings);
        let total = settings.memory.unwrap_or_else(machine::memory);
        let devices = (0..devices(settings)).map(|device| {
            let mut live = LiveStreams::default();
            let default_stream =
                live.add(|ordinal| HostStream::new(device, ordinal, chaos, pending));
            let memory = HostMemory::of_device(device, total, chaos);
            HostDevice {
                memory,
                live: Mutex::new(live),
                default_stream,
            }
        });
        Self {
            devices: devices.collect(),
            chaos,
            pending,
            pinned: HostMemory::pinned(machine::memory(), chaos),
        }
    }

    fn device(&self, device: usize) -> Result<&HostDevice> {
        let count = self.devices.len();
        self.devices.get(device).ok_or_else(|| {
            Error::invalid_argument("device", format!("there is no host device {device}"))
                .with_hint(format!(
                    "there are {count}: raise FLAGOS_HOST_DEVICES for more"
                ))
        })
    }

    /// Waits for every stream of a device, leaving errors in place.
    fn drain(&self, device: usize, operation: &'static str) -> Result<Vec<Arc<HostStream>>> {
        let streams = self.device(device)?.live.lock().all();
        for stream in &streams {
            if !stream.is_idle() {
                work::refuse_in_work(operation)?;
                stream.drain();
            }
        }
        Ok(streams)
    }
}

impl Vendor for HostVendor {
    fn name(&self) -> &'static str {
        &description::description().name
    }

    fn device_count(&self) -> usize {
        self.devices.len()
    }

    fn properties(&self, device: usize) -> Result<DeviceProperties> {
        Ok(DeviceProperties {
            name: machine::processor(),
            total_memory: self.device(device)?.memory.info().total,
            multi_processor_count: machine::cores(),
            // A host has no compute capability; 1.0 sorts before every accelerator's.
            major: 1,
            minor: 0,
        })
    }

    fn memory(&self, device: usize) -> Result<MemoryInfo> {
        Ok(self.device(device)?.memory.info())
    }

    fn alloc(&self, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        self.device(device)?.memory.alloc(nbytes)
    }

    unsafe fn free(&self, device: usize, address: NonNull<u8>, nbytes: usize) {
        if let Some(device) = self.devices.get(device) {
            // SAFETY: the caller's promise.
            unsafe { device.memory.free(address, nbytes) };
        }
    }

    fn pinned_alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        self.pinned.alloc(nbytes)
    }

    unsafe fn pinned_free(&self, address: NonNull<u8>, nbytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.pinned.free(address, nbytes) };
    }

    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        let stream = Arc::clone(&self.device(device)?.default_stream);
        Ok(stream)
    }

    /// Makes a stream. Its priority has no effect, because threads of one process share its priority.
    fn stream(&self, device: usize, _priority: i32) -> Result<Arc<dyn Stream>> {
        let mut live = self.device(device)?.live.lock();
        Ok(live.add(|ordinal| HostStream::new(device, ordinal, self.chaos, self.pending)))
    }

    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        self.device(device)?;
        Ok(Arc::new(HostEvent::new(device, timing)))
    }

    fn device_sync(&self, device: usize) -> Result<()> {
        let mut first = Ok(());
        for stream in self.drain(device, "device_sync")? {
            let outcome = stream.take_error();
            if first.is_ok() {
                first = outcome;
            }
        }
        first
    }

    fn quiesce(&self, device: usize) -> Result<()> {
        self.drain(device, "quiesce").map(drop)
    }

    fn in_stream_work(&self) -> bool {
        work::in_work()
    }

    fn pending(&self) -> &sync::AtomicU64 {
        self.pending
    }

    /// No worker exists in the child, so nothing will ever finish.
    fn after_fork_in_child(&self) {
        self.pending.store(0, sync::Ordering::Relaxed);
    }
}
