//! The streams of each device, by the ids adapters use.
//!
//! Id 0 is the default stream. Other ids come from a fixed set of 32 for each of two priorities, handed
//! out round robin, so that a program may ask for any number of streams and destroy none.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};

use super::vendor::{Stream, Vendor};

/// The number of streams of each priority.
const PER_PRIORITY: usize = 32;
/// The number of stream ids of a device.
pub(super) const MAX_STREAMS: usize = 1 + 2 * PER_PRIORITY;

struct DeviceStreams {
    slots: [OnceLock<Arc<dyn Stream>>; MAX_STREAMS],
    /// The number of streams asked for so far: of normal and of high priority.
    requests: [AtomicUsize; 2],
}

/// The streams of every device of a vendor.
pub struct Streams {
    vendor: Arc<dyn Vendor>,
    devices: Box<[DeviceStreams]>,
}

impl Streams {
    /// A table without streams: each is created when it is first used.
    pub fn new(vendor: Arc<dyn Vendor>) -> Self {
        let devices = (0..vendor.device_count())
            .map(|_| DeviceStreams {
                slots: [const { OnceLock::new() }; MAX_STREAMS],
                requests: [const { AtomicUsize::new(0) }; 2],
            })
            .collect();
        Self { vendor, devices }
    }

    /// The vendor of the streams.
    pub(super) fn vendor(&self) -> &dyn Vendor {
        &*self.vendor
    }

    /// A stream id of the given priority: below 0 is high, everything else normal.
    pub fn create(&self, device: usize, priority: i32) -> Result<u64> {
        let streams = self.device(device)?;
        let high = usize::from(priority < 0);
        let turn = streams.requests[high].fetch_add(1, Ordering::Relaxed) % PER_PRIORITY;
        let id = 1 + high * PER_PRIORITY + turn;
        if streams.slots[id].get().is_none() {
            let stream = self.vendor.stream(device, -i32::from(priority < 0))?;
            // Another thread may have created the stream of the same id meanwhile: its stream stays.
            let _ = streams.slots[id].set(stream);
        }
        Ok(id as u64)
    }

    /// The stream behind an id.
    pub fn get(&self, device: usize, id: u64) -> Result<&dyn Stream> {
        let streams = self.device(device)?;
        let slot = usize::try_from(id)
            .ok()
            .and_then(|id| streams.slots.get(id));
        if let Some(stream) = slot.and_then(OnceLock::get) {
            return Ok(&**stream);
        }
        match slot {
            Some(slot) if id == 0 => {
                let stream = self.vendor.default_stream(device)?;
                Ok(&**slot.get_or_init(|| stream))
            }
            _ => Err(Error::invalid_argument(
                "stream",
                format!("no stream {id} on device {device}"),
            )
            .with_hint("use 0 or an id from stream_create on the same device")),
        }
    }

    fn device(&self, device: usize) -> Result<&DeviceStreams> {
        self.devices
            .get(device)
            .ok_or_else(|| no_device(device, self.devices.len()))
    }
}

/// The error for a device that does not exist.
#[cold]
pub(super) fn no_device(device: usize, count: usize) -> Error {
    let error = Error::invalid_argument("device", format!("there is no device {device}"));
    match count {
        1 => error.with_hint("the only device is 0"),
        _ => error.with_hint(format!(
            "use a device from 0 to {}",
            count.saturating_sub(1)
        )),
    }
}
