//! The cached memory of one device: pure bookkeeping, without a call to the vendor.
//!
//! Each stream has two sets of bins, small and large, because memory freed in the order of a stream
//! may be reused at once by that stream only. Blocks are split on allocation and merged with their
//! free neighbours when freed.
//!
//! A *shelf* is a place for such bins. Shelves below [`MAX_STREAMS`] are those of the streams. The memory of graphs has shelves
//! of its own (see [`super::graph_memory`]), so that nothing else gets what a graph will use again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};

use super::bins::Bins;
use super::block::{Block, BlockHandle, BlockId, Blocks, NONE, PoolKind, Shelf, State};
use super::graph_memory::Shelves;
use super::leases::{Leases, Wanted};
use super::magazines::Magazines;
use super::stats::Tallies;
use super::streams::MAX_STREAMS;

/// The multiple in bytes to which sizes are rounded up.
const QUANTUM: usize = 512;
/// The largest block of the small pool.
const SMALL_BLOCK: usize = 1 << 20;
/// Segments of the small pool, and the unit of large segments.
const SMALL_SEGMENT: usize = 2 << 20;
/// Segments for blocks below [`LARGE_BLOCK`].
const LARGE_SEGMENT: usize = 20 << 20;
/// The least size of a block that gets a segment of its own.
const LARGE_BLOCK: usize = 10 << 20;

/// The largest block: more bytes than any address space of today has.
const LARGEST_BLOCK: usize = 1 << 47;

/// The size of the block that serves a request of `nbytes` and has `padding` behind it; `None` when there is no such size.
#[inline]
pub(super) fn block_size(nbytes: usize, padding: usize) -> Option<usize> {
    let size = nbytes.checked_add(padding)?.checked_add(QUANTUM - 1)? & !(QUANTUM - 1);
    (size <= LARGEST_BLOCK).then_some(size)
}

/// The pool a block of `size` comes from.
#[inline]
pub(super) fn kind_of(size: usize) -> PoolKind {
    if size <= SMALL_BLOCK {
        PoolKind::Small
    } else {
        PoolKind::Large
    }
}

/// The segments to ask the vendor for, in order of preference, to serve a block of `size`.
pub(super) fn segment_sizes(size: usize) -> [usize; 2] {
    let exact = size.saturating_add(SMALL_SEGMENT - 1) & !(SMALL_SEGMENT - 1);
    match kind_of(size) {
        // A nearly full device may still have room for the block alone.
        PoolKind::Small => [SMALL_SEGMENT, size],
        PoolKind::Large if size < LARGE_BLOCK => [LARGE_SEGMENT, exact],
        PoolKind::Large => [exact, size],
    }
}

/// A whole segment on its way back to the vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    id: BlockId,
    pub(super) address: usize,
    pub(super) size: usize,
}

/// The outcome of a caller's free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    /// The block is free.
    Free,
    /// Other streams still use the block: those of its device, one bit each, and [`ELSEWHERE`].
    InUse(BlockId, u128),
}

/// The bit of a block's uses that stands for streams of other devices.
const ELSEWHERE: u128 = 1 << 127;
const _: () = assert!(MAX_STREAMS < 127);

/// The cached memory of one device.
#[derive(Debug)]
pub(super) struct Pool {
    device: usize,
    pub(super) blocks: Blocks,
    leases: Arc<Leases>,
    pub(super) tallies: Tallies,
    /// Indexed by shelf; made when a shelf first allocates.
    bins: Vec<Option<Box<[Bins; 2]>>>,
    /// The shelves of graphs.
    pub(super) shelves: Shelves,
    /// The streams of other devices, by device and number, that use a block. Few programs have any.
    elsewhere: HashMap<BlockId, Vec<(usize, u64)>>,
}

impl Pool {
    pub(super) fn new(device: usize, leases: Arc<Leases>) -> Self {
        Self {
            device,
            blocks: Blocks::default(),
            leases,
            tallies: Tallies::default(),
            bins: (0..MAX_STREAMS).map(|_| None).collect(),
            shelves: Shelves::default(),
            elsewhere: HashMap::new(),
        }
    }

    /// Takes a free block of at least `size` bytes from the bins of `shelf`, if there is one. The shelf of a stream has its
    /// number. A magazine may keep the block for what is `wanted`.
    #[inline]
    pub(super) fn take(
        &mut self,
        shelf: u64,
        size: usize,
        requested: usize,
        wanted: Option<Wanted>,
    ) -> Option<(usize, BlockHandle)> {
        let kind = kind_of(size);
        let bins = self.bins.get_mut(usize::try_from(shelf).ok()?)?.as_mut()?;
        let bins = &mut bins[kind as usize];
        let blocks = &mut self.blocks;
        let id = bins.find(blocks, size)?;
        bins.remove(blocks, id);
        let (found, was_split) = (blocks[id].size, blocks[id].is_split());
        if was_split {
            self.tallies.inactive_split.sub(kind, 1);
            self.tallies.inactive_split_bytes.sub(kind, found);
        }
        let rest = found - size;
        let worth_splitting = match kind {
            PoolKind::Small => rest >= QUANTUM,
            PoolKind::Large => rest > SMALL_BLOCK,
        };
        if worth_splitting {
            let block = &mut blocks[id];
            block.size = size;
            let next = block.next;
            let place = (block.stream, block.shelf);
            let mut tail = Block::free(block.address + size, rest, place, kind);
            (tail.prev, tail.next) = (id, next);
            let tail = blocks.insert(tail);
            blocks[id].next = tail;
            if next != NONE {
                blocks[next].prev = tail;
            }
            bins.insert(blocks, tail);
            self.tallies.inactive_split.add(kind, 1);
            self.tallies.inactive_split_bytes.add(kind, rest);
        }
        let block = &mut blocks[id];
        block.state = State::Allocated;
        block.requested = requested;
        let size = block.size;
        let tallies = &mut self.tallies;
        tallies.allocation.add(kind, 1);
        tallies.allocated_bytes.add(kind, size);
        tallies.active.add(kind, 1);
        tallies.active_bytes.add(kind, size);
        tallies.requested_bytes.add(kind, requested);
        let address = block.address;
        let generation = self.leases.grant(id, address, wanted);
        Some((address, BlockHandle::new(self.device, generation, id)))
    }

    /// Adds a segment obtained from the vendor for a shelf of `stream`.
    pub(super) fn add_segment(
        &mut self,
        (stream, shelf): (u64, Shelf),
        kind: PoolKind,
        address: usize,
        size: usize,
    ) {
        let block = Block::free(address, size, (stream as u32, shelf), kind);
        let id = self.blocks.insert(block);
        let place = shelf as usize;
        if place >= self.bins.len() {
            self.bins.resize_with(place + 1, || None);
        }
        self.shelves.grew(shelf);
        let bins = &mut self.bins[place];
        let bins = bins.get_or_insert_with(|| Box::new([Bins::new(), Bins::new()]));
        bins[kind as usize].insert(&mut self.blocks, id);
        self.tallies.segment.add(kind, 1);
        self.tallies.reserved_bytes.add(kind, size);
    }

    /// Frees a block on behalf of its caller.
    #[inline]
    pub(super) fn release(&mut self, handle: BlockHandle) -> Result<Release> {
        if !self.leases.end(handle) {
            return Err(not_allocated("mem_free"));
        }
        Ok(self.give_up(handle.id()))
    }

    /// Brings the books up to date with the magazines.
    #[cold]
    pub(super) fn collect(&mut self, magazines: &Magazines) {
        let reuses = magazines.collect(|id| self.settle(id));
        let tallies = &mut self.tallies;
        for (tally, amount) in [
            (&mut tallies.allocation, reuses.count),
            (&mut tallies.active, reuses.count),
            (&mut tallies.allocated_bytes, reuses.bytes),
            (&mut tallies.active_bytes, reuses.bytes),
            (&mut tallies.requested_bytes, reuses.requested),
        ] {
            tally.passed(PoolKind::Small, amount);
        }
    }

    /// Frees a block that a magazine has kept. No other stream uses it.
    #[inline]
    pub(super) fn settle(&mut self, id: BlockId) {
        self.leases.unkeep(id);
        self.give_up(id);
    }

    /// Frees a block whose lease has ended.
    #[inline]
    fn give_up(&mut self, id: BlockId) -> Release {
        let block = &mut self.blocks[id];
        let (kind, size, requested) = (block.pool, block.size, block.requested);
        block.requested = 0;
        let uses = block.uses;
        self.tallies.allocation.sub(kind, 1);
        self.tallies.allocated_bytes.sub(kind, size);
        self.tallies.requested_bytes.sub(kind, requested);
        if uses != 0 {
            let block = &mut self.blocks[id];
            block.state = State::Deferred;
            block.uses = 0;
            return Release::InUse(id, uses);
        }
        self.reclaim(id);
        Release::Free
    }

    /// Notes that a stream of `device` uses an allocated block. A stream needs no note for its own blocks.
    pub(super) fn record_use(
        &mut self,
        handle: BlockHandle,
        device: usize,
        stream: u64,
    ) -> Result<()> {
        let not_allocated = || not_allocated("mem_record_stream");
        if !self.leases.holds(handle) {
            return Err(not_allocated());
        }
        // As long as the caller holds the block its stream stays as it is.
        let is_own = device == self.device;
        if is_own && u64::from(self.blocks[handle.id()].stream) == stream {
            return Ok(());
        }
        if !self.leases.share(handle) {
            return Err(not_allocated());
        }
        let block = &mut self.blocks[handle.id()];
        if is_own {
            block.uses |= 1 << stream;
            return Ok(());
        }
        block.uses |= ELSEWHERE;
        let streams = self.elsewhere.entry(handle.id()).or_default();
        if !streams.contains(&(device, stream)) {
            streams.push((device, stream));
        }
        Ok(())
    }

    /// The streams, by device and number, that `uses` of a block stands for; forgets those of other devices.
    pub(super) fn take_uses(&mut self, id: BlockId, uses: u128) -> Vec<(usize, u64)> {
        let mut streams = match uses & ELSEWHERE {
            0 => Vec::new(),
            _ => self.elsewhere.remove(&id).unwrap_or_default(),
        };
        let own = (0..MAX_STREAMS as u64).filter(|stream| uses >> stream & 1 != 0);
        streams.extend(own.map(|stream| (self.device, stream)));
        streams
    }

    /// Returns a block that no stream uses any more to its bins, merged with its free neighbours.
    #[inline]
    pub(super) fn reclaim(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (kind, size, shelf) = (block.pool, block.size, block.shelf);
        self.tallies.active.sub(kind, 1);
        self.tallies.active_bytes.sub(kind, size);
        let Some(bins) = self.bins[shelf as usize].as_mut() else {
            return;
        };
        let bins = &mut bins[kind as usize];
        let blocks = &mut self.blocks;
        let mut id = id;
        let (prev, next) = (blocks[id].prev, blocks[id].next);
        let mut merged = 0;
        let mut merged_bytes = 0;
        if next != NONE && blocks[next].state == State::Free {
            bins.remove(blocks, next);
            merged += 1;
            merged_bytes += blocks[next].size;
            absorb_next(blocks, id, next);
        }
        if prev != NONE && blocks[prev].state == State::Free {
            bins.remove(blocks, prev);
            merged += 1;
            merged_bytes += blocks[prev].size;
            absorb_next(blocks, prev, id);
            id = prev;
        }
        blocks[id].state = State::Free;
        bins.insert(blocks, id);
        if merged != 0 {
            self.tallies.inactive_split.sub(kind, merged);
            self.tallies.inactive_split_bytes.sub(kind, merged_bytes);
        }
        if blocks[id].is_split() {
            self.tallies.inactive_split.add(kind, 1);
            self.tallies.inactive_split_bytes.add(kind, blocks[id].size);
        }
    }

    /// Takes every wholly free segment out of the bins, of one shelf and pool or of all, but for the memory of graphs that
    /// are there. Segments taken out stay counted as reserved until [`Pool::forget`], or return to the bins with [`Pool::restore`].
    pub(super) fn retire(&mut self, only: Option<(Shelf, PoolKind)>) -> Vec<Segment> {
        let shelves = &self.shelves;
        let wanted = |block: &Block| {
            let chosen =
                only.is_none_or(|(shelf, kind)| block.shelf == shelf && block.pool == kind);
            chosen && block.state == State::Free && !block.is_split() && !shelves.keeps(block.shelf)
        };
        let free = self.blocks.iter().filter(|(_, block)| wanted(block));
        let segments: Vec<_> = free
            .map(|(id, block)| Segment {
                id,
                address: block.address,
                size: block.size,
            })
            .collect();
        for segment in &segments {
            let block = &mut self.blocks[segment.id];
            block.state = State::Retired;
            let (shelf, kind) = (block.shelf as usize, block.pool as usize);
            if let Some(bins) = self.bins[shelf].as_mut() {
                bins[kind].remove(&mut self.blocks, segment.id);
            }
        }
        segments
    }

    /// Forgets retired segments, which the vendor has freed.
    pub(super) fn forget(&mut self, segments: &[Segment]) {
        for segment in segments {
            let (kind, shelf) = (self.blocks[segment.id].pool, self.blocks[segment.id].shelf);
            self.blocks.remove(segment.id);
            self.shelves.shrank(shelf);
            self.tallies.segment.sub(kind, 1);
            self.tallies.reserved_bytes.sub(kind, segment.size);
            self.tallies.num_device_free += 1;
        }
    }

    /// Returns retired segments to the bins, because the vendor could not free them.
    pub(super) fn restore(&mut self, segments: &[Segment]) {
        for segment in segments {
            let block = &mut self.blocks[segment.id];
            block.state = State::Free;
            let (shelf, kind) = (block.shelf as usize, block.pool as usize);
            if let Some(bins) = self.bins[shelf].as_mut() {
                bins[kind].insert(&mut self.blocks, segment.id);
            }
        }
    }

    /// Bytes obtained from the vendor and not given back.
    pub(super) fn reserved(&self) -> usize {
        self.tallies.reserved_bytes.current() as usize
    }
}

/// `first` takes over the range of its neighbour `second`, whose slot empties.
#[inline]
fn absorb_next(blocks: &mut Blocks, first: BlockId, second: BlockId) {
    let (size, next) = (blocks[second].size, blocks[second].next);
    blocks[first].size += size;
    blocks[first].next = next;
    if next != NONE {
        blocks[next].prev = first;
    }
    blocks.remove(second);
}

#[cold]
fn not_allocated(operation: &'static str) -> Error {
    Error::invalid_argument(operation, "the block is not allocated")
        .with_hint("free each block once, and do not use it afterwards")
}

#[cfg(test)]
impl Pool {
    /// Asserts the invariants that hold between calls.
    pub(super) fn validate(&self) {
        let mut sums = [[0_i64; 4]; 2];
        for (id, block) in self.blocks.iter() {
            assert!(block.size > 0 && block.size % QUANTUM == 0);
            if block.next != NONE {
                let next = &self.blocks[block.next];
                assert_eq!(next.prev, id);
                assert_eq!(block.address + block.size, next.address);
                assert_eq!((block.stream, block.pool), (next.stream, next.pool));
                assert_eq!(block.shelf, next.shelf);
                assert!(
                    !(block.state == State::Free && next.state == State::Free),
                    "not merged"
                );
            }
            let sum = &mut sums[block.pool as usize];
            match block.state {
                State::Allocated | State::Deferred => {
                    sum[0] += 1;
                    sum[1] += block.size as i64;
                }
                State::Free if block.is_split() => {
                    sum[2] += 1;
                    sum[3] += block.size as i64;
                }
                _ => {}
            }
        }
        let stats = self.tallies.stats();
        for (sum, pick) in sums.iter().zip([PoolKind::Small, PoolKind::Large]) {
            let current = |array: super::stats::StatArray| match pick {
                PoolKind::Small => array.small.current,
                PoolKind::Large => array.large.current,
            };
            assert_eq!(sum[0], current(stats.active));
            assert_eq!(sum[1], current(stats.active_bytes));
            assert_eq!(sum[2], current(stats.inactive_split));
            assert_eq!(sum[3], current(stats.inactive_split_bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 1 << 30;

    fn pool() -> Pool {
        let mut pool = Pool::new(0, Arc::default());
        pool.add_segment((0, 0), PoolKind::Small, BASE, SMALL_SEGMENT);
        pool
    }

    #[test]
    fn rounds_up_to_512_and_refuses_the_impossible() {
        assert_eq!(block_size(1, 0), Some(512));
        assert_eq!(block_size(512, 0), Some(512));
        assert_eq!(block_size(513, 0), Some(1024));
        assert_eq!(block_size(480, 32), Some(512));
        assert_eq!(block_size(481, 32), Some(1024));
        assert_eq!(block_size(usize::MAX - 16, 32), None);
        assert_eq!(block_size(LARGEST_BLOCK + 1, 0), None);
        assert_eq!(block_size(usize::MAX, 0), None);
    }

    #[test]
    fn segments_follow_the_size() {
        let mib = |n: usize| n << 20;
        for (size, segment) in [
            (512, mib(2)),
            (mib(1), mib(2)),
            (mib(1) + 512, mib(20)),
            (mib(10) - 512, mib(20)),
            (mib(10), mib(10)),
            (mib(11) + 512, mib(12)),
        ] {
            assert_eq!(segment_sizes(size)[0], segment, "{size}");
        }
    }

    #[test]
    fn neighbours_merge_in_any_order() {
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let mut pool = pool();
            let held = [(); 3].map(|()| pool.take(0, 512, 500, None).expect("a block"));
            assert_eq!(held.map(|(address, _)| address - BASE), [0, 512, 1024]);
            for i in order {
                assert_eq!(pool.release(held[i].1).expect("allocated"), Release::Free);
                pool.validate();
            }
            assert_eq!(pool.blocks.iter().count(), 1);
            assert_eq!(pool.tallies.stats().inactive_split.all.current, 0);
        }
    }

    #[test]
    fn a_stream_does_not_take_from_another() {
        let mut pool = pool();
        assert!(pool.take(1, 512, 512, None).is_none());
        assert!(pool.take(u64::MAX, 512, 512, None).is_none());
    }

    #[test]
    fn freeing_twice_is_refused() {
        let mut pool = pool();
        let (_, block) = pool.take(0, 512, 512, None).expect("a block");
        pool.release(block).expect("allocated");
        assert!(pool.release(block).is_err());
        assert!(pool.record_use(block, 0, 1).is_err());
        pool.validate();
    }

    #[test]
    fn only_whole_segments_retire() {
        let mut pool = pool();
        let (_, block) = pool.take(0, 512, 512, None).expect("a block");
        assert_eq!(pool.retire(None), []);
        pool.release(block).expect("allocated");
        assert_eq!(pool.retire(Some((0, PoolKind::Large))), []);
        let retired = pool.retire(Some((0, PoolKind::Small)));
        assert_eq!(retired.len(), 1);
        assert!(pool.take(0, 512, 512, None).is_none());
        pool.restore(&retired);
        pool.validate();
        let retired = pool.retire(None);
        pool.forget(&retired);
        assert_eq!((pool.reserved(), pool.blocks.iter().count()), (0, 0));
    }
}
