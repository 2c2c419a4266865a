//! Page-locked host memory, cached in powers of two.
//!
//! A freed block is reused only after the streams recorded on it have finished the work queued before the free.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::{Error, Result};

use super::deferred::Deferred;
use super::ranges::Ranges;
use super::stats::{PinnedStats, PinnedTallies};
use super::streams::Streams;

/// The smallest block: a page.
const SMALLEST: usize = 4096;

/// A live pinned allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedAllocation {
    /// First byte, aligned to a page.
    pub data: NonNull<u8>,
    /// The handle by which the caller frees the block, never 0. The handle is the address, so that a copy, which knows
    /// only a pointer, finds its block.
    pub block: usize,
}

/// Caches pinned memory for every device of a vendor.
pub struct PinnedAllocator {
    streams: Arc<Streams>,
    state: Mutex<State>,
    /// From every address within a block to the block.
    ranges: Ranges<usize>,
}

struct State {
    /// Every block obtained from the vendor, by address.
    blocks: HashMap<usize, PinnedBlock>,
    /// Free blocks by log2 of their size.
    free: [Vec<usize>; usize::BITS as usize],
    /// Blocks freed while streams use them, by device.
    deferred: Deferred<usize>,
    tallies: PinnedTallies,
}

struct PinnedBlock {
    size: usize,
    allocated: bool,
    /// The streams that use the block, as (device, stream), each once.
    uses: Vec<(usize, u64)>,
    events: usize,
}

impl PinnedAllocator {
    /// An empty cache.
    pub fn new(streams: Arc<Streams>) -> Self {
        let state = State {
            blocks: HashMap::new(),
            free: [const { Vec::new() }; usize::BITS as usize],
            deferred: Deferred::new(),
            tallies: PinnedTallies::new(),
        };
        Self {
            streams,
            state: Mutex::new(state),
            ranges: Ranges::default(),
        }
    }

    /// Allocates pinned memory. `None` when `nbytes` is 0.
    pub fn alloc(&self, nbytes: usize) -> Result<Option<PinnedAllocation>> {
        if nbytes == 0 {
            return Ok(None);
        }
        let size = nbytes.max(SMALLEST).checked_next_power_of_two();
        let Some(size) = size.filter(|size| *size <= isize::MAX as usize) else {
            let message = format!("{nbytes} bytes of pinned memory were requested");
            return Err(Error::out_of_memory("pinned_alloc", message).with_hint("check the shape"));
        };
        let mut state = self.state.lock();
        state.poll(&self.streams);
        if let Some(address) = state.free[size.ilog2() as usize].pop() {
            if let Some(block) = state.blocks.get_mut(&address) {
                block.allocated = true;
                state.tallies.handed_out(size);
                return pinned(address).map(Some);
            }
        }
        let vendor = self.streams.vendor();
        let mut began = Instant::now();
        let data = match vendor.pinned_alloc(size) {
            Ok(data) => data,
            Err(error) if error.kind() == crate::ErrorKind::OutOfMemory => {
                drop(state);
                self.empty_cache();
                state = self.state.lock();
                began = Instant::now();
                vendor.pinned_alloc(size)?
            }
            Err(error) => return Err(error),
        };
        state.tallies.pinned(size, began.elapsed());
        state.tallies.handed_out(size);
        let address = data.as_ptr() as usize;
        self.ranges.insert(address, size, address);
        let block = PinnedBlock {
            size,
            allocated: true,
            uses: Vec::new(),
            events: 0,
        };
        state.blocks.insert(address, block);
        pinned(address).map(Some)
    }

    /// Gives a block back. Any thread may do so.
    pub fn free(&self, block: usize) -> Result<()> {
        let mut guard = self.state.lock();
        let State {
            blocks,
            free,
            deferred,
            tallies,
        } = &mut *guard;
        let found = blocks.get_mut(&block).filter(|found| found.allocated);
        let found = found.ok_or_else(|| not_allocated("pinned_free"))?;
        found.allocated = false;
        for (device, stream) in std::mem::take(&mut found.uses) {
            let vendor = self.streams.vendor();
            if deferred.push(vendor, &self.streams, device, stream, block) {
                found.events += 1;
            }
        }
        if found.events == 0 {
            free[found.size.ilog2() as usize].push(block);
            tallies.reusable(found.size);
        }
        Ok(())
    }

    /// Notes that work queued on `stream` uses the block that `address` lies in. An address suffices,
    /// because a caller that has the memory through another owner knows no handle.
    pub fn record_stream(&self, address: usize, device: usize, stream: u64) -> Result<()> {
        self.streams.get(device, stream)?;
        let block = self.ranges.find(address);
        let block = block.ok_or_else(|| not_allocated("pinned_record"))?;
        let mut state = self.state.lock();
        let found = state.blocks.get_mut(&block).filter(|found| found.allocated);
        let found = found.ok_or_else(|| not_allocated("pinned_record"))?;
        if !found.uses.contains(&(device, stream)) {
            found.uses.push((device, stream));
        }
        Ok(())
    }

    /// Whether the address lies in pinned memory.
    pub fn is_pinned(&self, address: *const u8) -> bool {
        self.ranges.find(address as usize).is_some()
    }

    /// Gives every free block back to the vendor.
    pub fn empty_cache(&self) {
        let mut guard = self.state.lock();
        guard.poll(&self.streams);
        let State {
            blocks,
            free,
            tallies,
            ..
        } = &mut *guard;
        for address in free.iter_mut().flat_map(std::mem::take) {
            let Some(block) = blocks.remove(&address) else {
                continue;
            };
            self.ranges.remove(address);
            if let Some(data) = NonNull::new(address as *mut u8) {
                let began = Instant::now();
                // SAFETY: the block came from `pinned_alloc`, is free, and every stream recorded on
                // it has passed.
                unsafe { self.streams.vendor().pinned_free(data, block.size) };
                tallies.unpinned(block.size, began.elapsed());
            }
        }
    }

    /// The statistics of pinned memory.
    pub fn stats(&self) -> PinnedStats {
        let mut state = self.state.lock();
        state.poll(&self.streams);
        state.tallies.stats()
    }

    /// Peaks start again from the current values.
    pub fn reset_peak(&self) {
        self.state.lock().tallies.reset_peak();
    }

    /// Accumulated values start again from 0.
    pub fn reset_accumulated(&self) {
        self.state.lock().tallies.reset_accumulated();
    }
}

impl State {
    /// Frees the blocks that streams have finished using.
    fn poll(&mut self, streams: &Streams) {
        let Self {
            blocks,
            free,
            deferred,
            tallies,
        } = self;
        deferred.poll(streams, |address| {
            if let Some(block) = blocks.get_mut(&address) {
                block.events -= 1;
                if block.events == 0 {
                    free[block.size.ilog2() as usize].push(address);
                    tallies.reusable(block.size);
                }
            }
        });
    }
}

impl Drop for PinnedAllocator {
    fn drop(&mut self) {
        // A freed block that a stream still uses is free once its device has finished.
        let vendor = self.streams.vendor();
        for device in 0..vendor.device_count() {
            if let Err(error) = vendor.quiesce(device) {
                tracing::debug!(device, %error, "pinned memory in use was not given back");
            }
        }
        self.empty_cache();
    }
}

fn pinned(address: usize) -> Result<PinnedAllocation> {
    match NonNull::new(address as *mut u8) {
        Some(data) => Ok(PinnedAllocation {
            data,
            block: address,
        }),
        None => Err(Error::internal("pinned_alloc", "a block at address 0")),
    }
}

#[cold]
fn not_allocated(operation: &'static str) -> Error {
    Error::invalid_argument(operation, "the pinned block is not allocated")
        .with_hint("free each block once, and do not use it afterwards")
}
