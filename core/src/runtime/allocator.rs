//! The caching allocator: it keeps freed device memory for the next allocation instead of returning it to the vendor.
//!
//! One short lock per device guards its [`Pool`] and its statistics, which are therefore exact. Before the pool a thread
//! asks its own magazine, which has the small blocks that it freed last (see [`super::magazines`]). The
//! vendor is only called when the cache has no block. No lock is held while waiting for a device,
//! because work running on a stream may itself free memory.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::{Error, Result};

use super::block::{BlockHandle, BlockId, PoolKind, Shelf};
use super::deferred::Deferred;
use super::device_state::DeviceState;
use super::graph_memory::MemoryId;
use super::leases::{Leases, Wanted};
use super::magazines::Magazines;
use super::pool::{Pool, Release, Segment, block_size, kind_of, segment_sizes};
use super::ranges::Ranges;
use super::report;
use super::stats::MemoryStats;
use super::streams::{Streams, no_device};
use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use super::vendor::{MemoryInfo, Vendor};

/// A live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// First byte, aligned to 512.
    pub data: NonNull<u8>,
    /// The handle by which the caller frees the block, and names the streams that use it.
    pub block: BlockHandle,
}

/// Caches the memory of every device of a vendor.
pub struct CachingAllocator<V: Vendor + ?Sized> {
    vendor: Arc<V>,
    streams: Arc<Streams>,
    devices: Box<[Device]>,
    /// Address to device, for every segment.
    segments: Ranges<usize>,
    /// As [`Vendor::padding`].
    padding: usize,
}

struct Device {
    state: Mutex<DeviceState>,
    leases: Arc<Leases>,
    magazines: Magazines,
    /// 1 while a capture goes on, during which no magazine is used. Changed under the lock of the state.
    capturing: AtomicU64,
    /// Held while cached memory is given back to the vendor. Without it two threads short of memory could each find
    /// the other's segments neither cached nor returned, and both would fail.
    giving_back: Mutex<()>,
}

/// A request for a block, with the pool and the size that follow from it.
#[derive(Clone, Copy)]
struct Request {
    device: usize,
    stream: u64,
    nbytes: usize,
    /// `nbytes` rounded up.
    size: usize,
    kind: PoolKind,
}

impl Request {
    /// The requests that may have the block from a magazine.
    #[inline]
    fn wanted(&self) -> Option<Wanted> {
        match self.kind {
            PoolKind::Small => Wanted::new(self.stream, self.nbytes),
            PoolKind::Large => None,
        }
    }
}

impl Device {
    /// Brings the books up to date, if they may be behind.
    #[inline]
    fn collect(&self, state: &mut DeviceState) {
        if self.magazines.are_behind() {
            state.pool.collect(&self.magazines);
        }
    }

    /// The state with books that are up to date.
    fn settled(&self) -> MutexGuard<'_, DeviceState> {
        let mut state = self.state.lock();
        self.collect(&mut state);
        state
    }

    /// Tells threads without the lock whether a capture goes on.
    fn tell_capturing(&self, state: &DeviceState) {
        let capturing = state.pool.shelves.is_capturing();
        self.capturing
            .store(u64::from(capturing), Ordering::Release);
    }

    /// A block from the magazine of this thread.
    #[inline]
    fn take_kept(&self, index: usize, request: &Request) -> Option<Result<Allocation>> {
        let wanted = request.wanted()?;
        if self.capturing.load(Ordering::Acquire) != 0 {
            return None;
        }
        let cached = self.magazines.mine().take(wanted, request.size)?;
        let generation = self.leases.grant_again(cached.id);
        let block = BlockHandle::new(index, generation, cached.id);
        Some(allocation(cached.address, block))
    }

    /// Puts a block into the magazine of this thread, if it is for magazines.
    #[inline]
    fn keep(&self, block: BlockHandle) -> bool {
        if self.capturing.load(Ordering::Acquire) != 0 {
            return false;
        }
        let Some(cached) = self.leases.keep(block) else {
            return false;
        };
        if let Some(oldest) = self.magazines.put(cached) {
            self.state.lock().pool.settle(oldest.id);
        }
        true
    }
}

impl<V: Vendor + 'static> CachingAllocator<V> {
    /// An allocator with its own streams, over a vendor known at compile time.
    pub fn over(vendor: V) -> Result<Self> {
        let vendor = Arc::new(vendor);
        let streams = Arc::new(Streams::new(Arc::clone(&vendor) as Arc<dyn Vendor>));
        Self::new(vendor, streams)
    }
}

impl<V: Vendor + ?Sized> CachingAllocator<V> {
    /// An empty cache. `streams` are those of the same vendor.
    pub fn new(vendor: Arc<V>, streams: Arc<Streams>) -> Result<Self> {
        let count = vendor.device_count();
        if count > BlockHandle::MAX_DEVICES {
            return Err(Error::unsupported(
                "mem_alloc",
                format!("{count} devices are too many"),
            ));
        }
        let devices = (0..count).map(|device| {
            // `Vendor::memory` would tell the size too, but makes a vendor start every device.
            let total = vendor.properties(device)?.total_memory as usize;
            let leases = Arc::<Leases>::default();
            let state = DeviceState {
                pool: Pool::new(device, Arc::clone(&leases)),
                deferred: Deferred::new(),
                limit: total,
                total,
                refusal: None,
            };
            Ok(Device {
                state: Mutex::new(state),
                leases,
                magazines: Magazines::new(),
                capturing: AtomicU64::new(0),
                giving_back: Mutex::new(()),
            })
        });
        let devices = devices.collect::<Result<_>>()?;
        Ok(Self {
            padding: vendor.padding(),
            vendor,
            streams,
            devices,
            segments: Ranges::default(),
        })
    }

    /// Allocates on `device`, in the order of `stream`. `None` when `nbytes` is 0.
    #[inline]
    pub fn alloc(&self, device: usize, stream: u64, nbytes: usize) -> Result<Option<Allocation>> {
        if nbytes == 0 {
            return Ok(None);
        }
        let Some(size) = block_size(nbytes, self.padding) else {
            return Err(self.more_than_there_is(device, nbytes));
        };
        let request = Request {
            device,
            stream,
            nbytes,
            size,
            kind: kind_of(size),
        };
        let of_device = self.device(device)?;
        if let Some(cached) = of_device.take_kept(device, &request) {
            return cached.map(Some);
        }
        {
            let mut state = of_device.state.lock();
            if !state.deferred.is_empty() {
                state.poll(&self.streams);
            }
            if let Some(taken) = self.take(of_device, &mut state, &request)? {
                return Ok(Some(taken));
            }
        }
        self.alloc_from_vendor(request).map(Some)
    }

    /// Takes a block from the cache.
    #[inline]
    fn take(
        &self,
        device: &Device,
        state: &mut DeviceState,
        request: &Request,
    ) -> Result<Option<Allocation>> {
        let mut shelf = request.stream;
        let mut wanted = request.wanted();
        if state.pool.shelves.is_capturing() {
            shelf = self
                .shelf_in_capture(state, request.device, request.stream)?
                .into();
            wanted = None;
        }
        let (kind, size, nbytes) = (request.kind, request.size, request.nbytes);
        // A peak is raised by what callers hold, not by what magazines keep.
        if device.magazines.are_behind() && state.pool.tallies.would_peak(kind, size, nbytes) {
            device.collect(state);
        }
        state
            .pool
            .take(shelf, size, nbytes, wanted)
            .map(|(address, block)| allocation(address, block))
            .transpose()
    }

    /// The shelf for what is allocated now on a stream: while the stream is captured, one of the graph's memory.
    #[cold]
    fn shelf_in_capture(
        &self,
        state: &mut DeviceState,
        device: usize,
        stream: u64,
    ) -> Result<Shelf> {
        let capture = self.streams.get(device, stream)?.capture()?;
        let shelves = &mut state.pool.shelves;
        let memory = capture.and_then(|capture| shelves.memory_of(capture.id));
        Ok(match memory {
            Some(memory) => shelves.shelf(memory, stream),
            // `Streams::get` has found it.
            None => stream as Shelf,
        })
    }

    /// A capture has begun on the device: `id` is the vendor's number. From now on its streams allocate from the memory,
    /// which serves nothing else until [`CachingAllocator::release_graph`].
    pub fn begin_graph(&self, device: usize, id: u64, memory: MemoryId) -> Result<()> {
        let of_device = self.device(device)?;
        let mut state = of_device.state.lock();
        state.pool.shelves.begin(id, memory);
        of_device.tell_capturing(&state);
        of_device.collect(&mut state);
        Ok(())
    }

    /// The capture has ended.
    pub fn end_graph(&self, device: usize, id: u64) -> Result<()> {
        let of_device = self.device(device)?;
        let mut state = of_device.state.lock();
        state.pool.shelves.end(id);
        of_device.tell_capturing(&state);
        Ok(())
    }

    /// The graph, or the capture that failed, no longer uses the memory.
    pub fn release_graph(&self, device: usize, memory: MemoryId) -> Result<()> {
        self.lock(device)?.pool.shelves.release(memory);
        Ok(())
    }

    /// Gives a block back. Any thread may do so.
    #[inline]
    pub fn free(&self, block: BlockHandle) -> Result<()> {
        let device = block.device();
        let of_device = self.device(device)?;
        if of_device.keep(block) {
            return Ok(());
        }
        let mut guard = of_device.state.lock();
        let state = &mut *guard;
        match state.pool.release(block)? {
            Release::Free => {}
            Release::InUse(id, uses) => self.defer(state, id, uses),
        }
        Ok(())
    }

    /// Keeps a freed block back until the streams that use it have finished with it.
    #[cold]
    fn defer(&self, state: &mut DeviceState, id: BlockId, uses: u128) {
        let vendor = self.vendor_dyn();
        let mut events = 0;
        for (device, stream) in state.pool.take_uses(id, uses) {
            let waits = state
                .deferred
                .push(vendor, &self.streams, device, stream, id);
            events += u32::from(waits);
        }
        state.pool.blocks[id].events = events;
        if events == 0 {
            state.pool.reclaim(id);
        }
    }

    /// Notes that work queued on `stream` of `device`, which may be another than the block's, uses the block: once freed,
    /// it is reused only after what that stream has queued by then.
    pub fn record_stream(&self, block: BlockHandle, device: usize, stream: u64) -> Result<()> {
        self.streams.get(device, stream)?;
        let mut state = self.lock(block.device())?;
        state.pool.record_use(block, device, stream)
    }

    /// The device whose memory contains `address`.
    pub fn device_of(&self, address: *const u8) -> Option<usize> {
        self.segments.find(address as usize)
    }

    /// Statistics of one device.
    pub fn stats(&self, device: usize) -> Result<MemoryStats> {
        let mut state = self.settled(device)?;
        state.poll(&self.streams);
        Ok(state.pool.tallies.stats())
    }

    /// Peaks start again from the current values.
    pub fn reset_peak(&self, device: usize) -> Result<()> {
        self.settled(device)?.pool.tallies.reset_peak();
        Ok(())
    }

    /// Accumulated values start again from 0.
    pub fn reset_accumulated(&self, device: usize) -> Result<()> {
        self.settled(device)?.pool.tallies.reset_accumulated();
        Ok(())
    }

    /// Free and total memory, as the vendor sees them.
    pub fn info(&self, device: usize) -> Result<MemoryInfo> {
        self.device(device)?;
        self.vendor.memory(device)
    }

    /// Limits what may be reserved to a fraction (over 0, up to 1) of the device.
    pub fn set_fraction(&self, device: usize, fraction: f64) -> Result<()> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            let message = format!("the fraction is {fraction}");
            return Err(Error::invalid_argument("mem_set_fraction", message)
                .with_hint("use a number over 0 and up to 1"));
        }
        let mut state = self.lock(device)?;
        state.limit = (state.total as f64 * fraction) as usize;
        Ok(())
    }

    /// The cached segments and their blocks, as JSON in the form of torch's memory snapshot.
    pub fn snapshot_json(&self, device: usize) -> Result<String> {
        let mut state = self.settled(device)?;
        state.poll(&self.streams);
        report::snapshot(device, &state.pool)
    }

    /// Gives every segment without an allocation back to the vendor.
    pub fn empty_cache(&self, device: usize) -> Result<()> {
        if self.vendor.in_stream_work() {
            let message = "called from work running on a stream, which cannot wait for streams";
            return Err(Error::unsupported("mem_empty_cache", message)
                .with_hint("call it from another thread"));
        }
        let _one_at_a_time = self.device(device)?.giving_back.lock();
        if self.lock(device)?.pool.shelves.is_capturing() {
            let message = "a graph is being captured, and giving memory back waits for the device";
            return Err(Error::unsupported("mem_empty_cache", message)
                .with_context("device", device)
                .with_hint("call it before the capture, or after it"));
        }
        self.lock(device)?.poll(&self.streams);
        self.give_back(device, None)
    }

    fn device(&self, device: usize) -> Result<&Device> {
        self.devices
            .get(device)
            .ok_or_else(|| no_device(device, self.devices.len()))
    }

    #[inline]
    fn lock(&self, device: usize) -> Result<MutexGuard<'_, DeviceState>> {
        Ok(self.device(device)?.state.lock())
    }

    /// The state with books that are up to date.
    fn settled(&self, device: usize) -> Result<MutexGuard<'_, DeviceState>> {
        Ok(self.device(device)?.settled())
    }

    fn vendor_dyn(&self) -> &dyn Vendor {
        self.streams.vendor()
    }

    /// Allocates a block when the cache has none: asks the vendor, and after a refusal gives more and more cached memory
    /// back and asks again.
    #[cold]
    #[inline(never)]
    fn alloc_from_vendor(&self, request: Request) -> Result<Allocation> {
        let Request {
            device,
            stream,
            nbytes,
            size,
            kind,
        } = request;
        self.streams.get(device, stream)?;
        if size > self.lock(device)?.total {
            return Err(self.more_than_there_is(device, nbytes));
        }
        if let Some(found) = self.attempt(request)? {
            return Ok(found);
        }
        // Giving memory back waits for streams, which work running on a stream must not do, and nobody during a capture.
        let capturing = self.lock(device)?.pool.shelves.is_capturing();
        if !capturing && !self.vendor.in_stream_work() {
            let _one_at_a_time = self.device(device)?.giving_back.lock();
            // `Streams::get` has found it above.
            self.give_back(device, Some((stream as Shelf, kind)))?;
            if let Some(found) = self.attempt(request)? {
                self.lock(device)?.pool.tallies.num_alloc_retries += 1;
                return Ok(found);
            }
            self.vendor.quiesce(device)?;
            {
                let mut state = self.lock(device)?;
                state.pool.tallies.num_sync_all_streams += 1;
                state.poll(&self.streams);
            }
            self.give_back(device, None)?;
            if let Some(found) = self.attempt(request)? {
                self.lock(device)?.pool.tallies.num_alloc_retries += 1;
                return Ok(found);
            }
        }
        let mut state = self.settled(device)?;
        state.pool.tallies.num_ooms += 1;
        Err(report::out_of_memory(
            self.vendor.name(),
            device,
            nbytes,
            &state,
        ))
    }

    /// Takes a block from the cache, or from a new segment if the vendor gives one.
    fn attempt(&self, request: Request) -> Result<Option<Allocation>> {
        let Request {
            device,
            stream,
            size,
            kind,
            ..
        } = request;
        let of_device = self.device(device)?;
        // Blocks in magazines may serve, and another thread may have freed a block meanwhile.
        let mut state = of_device.settled();
        let taken = self.take(of_device, &mut state, &request)?;
        if taken.is_some() {
            return Ok(taken);
        }
        let shelf = if state.pool.shelves.is_capturing() {
            self.shelf_in_capture(&mut state, device, stream)?
        } else {
            stream as Shelf
        };
        if self.grow(&mut state, device, (stream, shelf), size, kind)? {
            return self.take(of_device, &mut state, &request);
        }
        Ok(None)
    }

    /// Adds a segment that can serve `size`. False when the vendor or the limit leaves no room for a segment.
    fn grow(
        &self,
        state: &mut DeviceState,
        device: usize,
        place: (u64, Shelf),
        size: usize,
        kind: PoolKind,
    ) -> Result<bool> {
        state.refusal = None;
        for segment in segment_sizes(size) {
            if segment > state.limit.saturating_sub(state.pool.reserved()) {
                continue;
            }
            state.pool.tallies.num_device_alloc += 1;
            match self.vendor.alloc(device, segment) {
                Ok(address) => {
                    let address = address.as_ptr() as usize;
                    self.segments.insert(address, segment, device);
                    state.pool.add_segment(place, kind, address, segment);
                    return Ok(true);
                }
                Err(error) if error.kind() == crate::ErrorKind::OutOfMemory => {
                    state.refusal = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Gives wholly free segments back to the vendor, in three steps: the segments leave the cache, so that no new
    /// allocation uses them; all work that may still touch them finishes; the vendor frees them.
    fn give_back(&self, device: usize, only: Option<(Shelf, PoolKind)>) -> Result<()> {
        let retired = self.settled(device)?.pool.retire(only);
        if retired.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.vendor.quiesce(device) {
            self.lock(device)?.pool.restore(&retired);
            return Err(error);
        }
        for segment in &retired {
            self.segments.remove(segment.address);
            // SAFETY: the segment came from `alloc`, no block in it is allocated, it is in no bin,
            // and the device has finished everything queued before it was retired.
            unsafe { self.free_segment(device, *segment) };
        }
        self.lock(device)?.pool.forget(&retired);
        Ok(())
    }

    /// # Safety
    /// As [`Vendor::free`].
    unsafe fn free_segment(&self, device: usize, segment: Segment) {
        if let Some(address) = NonNull::new(segment.address as *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { self.vendor.free(device, address, segment.size) };
        }
    }

    /// The error for a request larger than the device, which no freed memory can serve.
    #[cold]
    fn more_than_there_is(&self, device: usize, nbytes: usize) -> Error {
        match self.settled(device) {
            Ok(mut state) => {
                state.pool.tallies.num_ooms += 1;
                report::more_than_there_is(self.vendor.name(), device, nbytes, &state)
            }
            Err(error) => error,
        }
    }
}

#[cfg(test)]
impl<V: Vendor + ?Sized> CachingAllocator<V> {
    /// Asserts the invariants that hold between calls.
    #[cfg(not(loom))]
    pub(super) fn validate(&self, device: usize) {
        self.devices[device].state.lock().pool.validate();
    }

    /// The vendor below.
    #[cfg(not(loom))]
    pub(super) fn vendor(&self) -> &V {
        &self.vendor
    }

    /// The streams whose ids callers pass.
    pub(super) fn streams(&self) -> &Streams {
        &self.streams
    }
}

impl<V: Vendor + ?Sized> Drop for CachingAllocator<V> {
    fn drop(&mut self) {
        for device in 0..self.devices.len() {
            // A freed block that a stream still uses is free once the device has finished. Segments with live allocations
            // stay: their callers may still use them.
            let finished = self.vendor.quiesce(device);
            if let Err(error) = finished.and_then(|()| self.empty_cache(device)) {
                tracing::debug!(device, %error, "cached memory was not given back");
            }
        }
    }
}

#[inline]
fn allocation(address: usize, block: BlockHandle) -> Result<Allocation> {
    match NonNull::new(address as *mut u8) {
        Some(data) => Ok(Allocation { data, block }),
        None => Err(Error::internal("mem_alloc", "a segment at address 0")),
    }
}
