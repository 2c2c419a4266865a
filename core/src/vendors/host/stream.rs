//! Streams of the host: a queue and a worker thread, started by the first item.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64 as Counter, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use crate::env::FaultSite;
use crate::error::{Error, Result};
use crate::runtime::{Event, HostFn, Stream, sync};

use super::chaos::Chaos;
use super::event::HostEvent;
use super::queue::Queue;
use super::recorded::{Recorded, Stamp};
use super::work::{self, Work, refuse_in_work};

/// A stream of a host device.
pub(super) struct HostStream {
    device: usize,
    /// The number of the stream among those of its device, in the order of creation; 0 is the default stream.
    ordinal: usize,
    queue: Arc<Queue<Work>>,
    worker: Mutex<Option<JoinHandle<()>>>,
    chaos: Chaos,
    /// The number of calls so far, for each site where a failure can be injected.
    calls: [Counter; FaultSite::ALL.len()],
}

impl HostStream {
    pub(super) fn new(
        device: usize,
        ordinal: usize,
        chaos: Chaos,
        pending: &'static sync::AtomicU64,
    ) -> Self {
        Self {
            device,
            ordinal,
            queue: Arc::new(Queue::new(pending)),
            worker: Mutex::new(None),
            chaos,
            calls: [const { Counter::new(0) }; FaultSite::ALL.len()],
        }
    }

    /// The number by which [`Chaos`] distinguishes streams.
    fn lane(&self) -> u64 {
        (self.device as u64) << 32 | self.ordinal as u64
    }

    /// The failure to inject into this call, if [`Chaos`] decides for one.
    fn injected(&self, site: FaultSite) -> Option<Error> {
        let call = self.calls[site as usize].fetch_add(1, Ordering::Relaxed);
        if !self.chaos.fails(site, self.lane(), call) {
            return None;
        }
        let message = format!("injected failure of {} {call}", site.as_str());
        let error = Error::device(site.as_str(), message)
            .with_context("device", self.device)
            .with_context("stream", self.ordinal);
        Some(error.with_hint("FLAGOS_HOST_FAULT asks for it"))
    }

    /// Queues an item, starting the worker if there is none yet.
    fn push(&self, item: Work) -> Result<u64> {
        let mut worker = self.worker.lock();
        if worker.is_none() {
            let queue = Arc::clone(&self.queue);
            let (chaos, lane) = (self.chaos, self.lane());
            let name = format!("flagos-{}-{}", self.device, self.ordinal);
            let started = thread::Builder::new().name(name).spawn(move || {
                run_queue(&queue, chaos, lane);
            });
            let started = started.map_err(|error| {
                Error::device("stream", "no thread can be started").with_source(error)
            })?;
            *worker = Some(started);
        }
        Ok(self.queue.push(item))
    }

    /// Waits for everything queued, leaving errors in place.
    pub(super) fn drain(&self) {
        self.queue.wait_for(self.queue.last());
    }

    /// Reports the unreported error, once.
    pub(super) fn take_error(&self) -> Result<()> {
        match self.queue.take_error() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

fn run_queue(queue: &Queue<Work>, chaos: Chaos, lane: u64) {
    work::enter();
    let mut count = 0;
    while let Some(item) = queue.next() {
        if let Some(delay) = chaos.delay(lane, count) {
            thread::sleep(delay);
        }
        count += 1;
        queue.finish(item.run(|| queue.error()));
    }
}

impl Stream for HostStream {
    fn device(&self) -> usize {
        self.device
    }

    fn query(&self) -> Result<bool> {
        let idle = self.queue.is_idle();
        self.take_error()?;
        Ok(idle)
    }

    fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    fn sync(&self) -> Result<()> {
        if !self.queue.is_idle() {
            refuse_in_work("stream_sync")?;
            self.drain();
        }
        self.take_error()
    }

    unsafe fn copy(&self, dst: *mut u8, src: *const u8, nbytes: usize) -> Result<()> {
        if nbytes == 0 {
            return Ok(());
        }
        let item = match self.injected(FaultSite::Copy) {
            Some(error) => Work::Fail(error),
            None => Work::Copy { dst, src, nbytes },
        };
        self.push(item).map(drop)
    }

    unsafe fn launch(&self, function: HostFn, context: *mut c_void) -> Result<()> {
        if let Some(error) = self.injected(FaultSite::Launch) {
            return Err(error);
        }
        self.push(Work::Launch { function, context }).map(drop)
    }

    fn record(&self, event: &dyn Event) -> Result<()> {
        let event = HostEvent::from_dyn(event)?;
        if event.device != self.device {
            let message = format!(
                "an event of device {} was recorded on a stream of device {}",
                event.device, self.device
            );
            return Err(Error::invalid_argument("event_record", message)
                .with_hint("make the event for the stream's device"));
        }
        if let Some(error) = self.injected(FaultSite::Event) {
            return Err(error);
        }
        let stamp = Arc::new(Stamp::new(event.timing));
        let last = self.queue.last();
        let place = if self.queue.has_passed(last) {
            // Nothing runs, so the event is reached now, without a hop through the worker.
            stamp.set(self.queue.error());
            last
        } else {
            self.push(Work::Record(Arc::clone(&stamp)))?
        };
        event.record(Recorded::new(Arc::clone(&self.queue), place, stamp));
        Ok(())
    }

    fn wait(&self, event: &dyn Event) -> Result<()> {
        let Some(recorded) = HostEvent::from_dyn(event)?.recorded() else {
            return Ok(());
        };
        if recorded.is_on(&self.queue) || (recorded.is_over() && recorded.outcome().is_ok()) {
            return Ok(());
        }
        self.push(Work::Wait(recorded)).map(drop)
    }
}

impl Drop for HostStream {
    /// Waits until the worker has run all queued items, because launched functions own their contexts.
    fn drop(&mut self) {
        self.queue.close();
        let Some(worker) = self.worker.get_mut().take() else {
            return;
        };
        if worker.thread().id() != thread::current().id() && worker.join().is_err() {
            tracing::error!(device = self.device, "the worker of a stream panicked");
        }
    }
}

/// The live streams of one device.
#[derive(Default)]
pub(super) struct LiveStreams {
    made: usize,
    streams: Vec<Weak<HostStream>>,
}

impl LiveStreams {
    /// Adds the stream that `make` makes for the next ordinal.
    pub(super) fn add(&mut self, make: impl FnOnce(usize) -> HostStream) -> Arc<HostStream> {
        let stream = Arc::new(make(self.made));
        self.made += 1;
        self.streams.retain(|stream| stream.strong_count() > 0);
        self.streams.push(Arc::downgrade(&stream));
        stream
    }

    /// All live streams.
    pub(super) fn all(&self) -> Vec<Arc<HostStream>> {
        self.streams.iter().filter_map(Weak::upgrade).collect()
    }
}
