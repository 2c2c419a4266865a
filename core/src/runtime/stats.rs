//! Allocator statistics, with the names and meanings of torch's `DeviceStats`.

use std::time::Duration;

use super::block::PoolKind;

/// One statistic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// Value now.
    pub current: i64,
    /// Highest value since the peak was reset.
    pub peak: i64,
    /// Sum of increases since the accumulated values were reset.
    pub allocated: i64,
    /// Sum of decreases since the accumulated values were reset.
    pub freed: i64,
}

/// A statistic over both pools, and for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatArray {
    /// Both pools.
    pub all: Stat,
    /// Blocks of the small pool.
    pub small: Stat,
    /// Blocks of the large pool.
    pub large: Stat,
}

/// The allocator's statistics of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStats {
    /// Count: allocations handed to callers.
    pub allocation: StatArray,
    /// Count: segments obtained from the vendor.
    pub segment: StatArray,
    /// Count: blocks allocated or waiting for another stream.
    pub active: StatArray,
    /// Count: free blocks that share their segment with others.
    pub inactive_split: StatArray,
    /// Bytes in `allocation`.
    pub allocated_bytes: StatArray,
    /// Bytes in `segment`.
    pub reserved_bytes: StatArray,
    /// Bytes in `active`.
    pub active_bytes: StatArray,
    /// Bytes in `inactive_split`.
    pub inactive_split_bytes: StatArray,
    /// Bytes callers asked for, before rounding.
    pub requested_bytes: StatArray,
    /// Vendor allocations that succeeded only after cached memory was released.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors returned.
    pub num_ooms: i64,
    /// Times every stream of the device was waited for.
    pub num_sync_all_streams: i64,
    /// Calls to the vendor's allocation function.
    pub num_device_alloc: i64,
    /// Calls to the vendor's free function.
    pub num_device_free: i64,
}

/// The statistics of pinned memory, with the names and meanings of torch's `HostStats`. Sizes are
/// those of blocks, which are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedStats {
    /// Count: blocks handed to callers, or waiting for a stream that uses them.
    pub active_requests: Stat,
    /// Bytes in `active_requests`.
    pub active_bytes: Stat,
    /// Count: blocks obtained from the vendor.
    pub allocations: Stat,
    /// Bytes in `allocations`.
    pub allocated_bytes: Stat,
    /// Time the vendor took to pin memory.
    pub host_alloc_time: DurationStat,
    /// Time the vendor took to unpin memory.
    pub host_free_time: DurationStat,
    /// Blocks obtained from the vendor so far, by log2 of their size.
    pub bucket_allocation: [i64; usize::BITS as usize],
}

/// The duration of calls, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DurationStat {
    /// The sum over all calls.
    pub total: i64,
    /// The longest call.
    pub max: i64,
    /// The shortest call.
    pub min: i64,
    /// The number of calls.
    pub count: i64,
}

impl DurationStat {
    fn add(&mut self, took: Duration) {
        let took = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        self.total = self.total.saturating_add(took);
        self.max = self.max.max(took);
        self.min = match self.count {
            0 => took,
            _ => self.min.min(took),
        };
        self.count += 1;
    }
}

/// The running value of one pool. The sum of decreases is not kept: it follows from the sum of increases and the current
/// value, so that a decrease touches one field.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    current: i64,
    peak: i64,
    allocated: i64,
    /// `current` when the accumulated values were reset.
    at_reset: i64,
}

impl Counter {
    #[inline]
    fn add(&mut self, amount: usize) {
        self.current += amount as i64;
        self.allocated += amount as i64;
        self.peak = self.peak.max(self.current);
    }

    #[inline]
    fn sub(&mut self, amount: usize) {
        self.current -= amount as i64;
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.at_reset = self.current;
    }

    fn stat(&self) -> Stat {
        Stat {
            current: self.current,
            peak: self.peak,
            allocated: self.allocated,
            freed: self.at_reset + self.allocated - self.current,
        }
    }
}

/// One statistic while it is counted, under the device's lock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pools: [Counter; 2],
    peak: i64,
}

impl Tally {
    #[inline]
    pub(super) fn add(&mut self, pool: PoolKind, amount: usize) {
        self.pools[pool as usize].add(amount);
        self.peak = self.peak.max(self.current());
    }

    #[inline]
    pub(super) fn sub(&mut self, pool: PoolKind, amount: usize) {
        self.pools[pool as usize].sub(amount);
    }

    /// Counts what came and went between two looks.
    pub(super) fn passed(&mut self, pool: PoolKind, amount: usize) {
        self.pools[pool as usize].allocated += amount as i64;
    }

    /// Whether an increase would raise a peak.
    fn would_peak(&self, pool: PoolKind, amount: usize) -> bool {
        let (counter, amount) = (&self.pools[pool as usize], amount as i64);
        counter.current + amount > counter.peak || self.current() + amount > self.peak
    }

    #[inline]
    pub(super) fn current(&self) -> i64 {
        self.pools[0].current + self.pools[1].current
    }

    fn array(&self) -> StatArray {
        let [small, large] = self.pools.map(|counter| counter.stat());
        let all = Stat {
            current: small.current + large.current,
            peak: self.peak,
            allocated: small.allocated + large.allocated,
            freed: small.freed + large.freed,
        };
        StatArray { all, small, large }
    }

    fn reset_peak(&mut self) {
        self.pools.iter_mut().for_each(Counter::reset_peak);
        self.peak = self.current();
    }

    fn reset_accumulated(&mut self) {
        self.pools.iter_mut().for_each(Counter::reset_accumulated);
    }
}

/// All statistics of a device while they are counted.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) allocation: Tally,
    pub(super) segment: Tally,
    pub(super) active: Tally,
    pub(super) inactive_split: Tally,
    pub(super) allocated_bytes: Tally,
    pub(super) reserved_bytes: Tally,
    pub(super) active_bytes: Tally,
    pub(super) inactive_split_bytes: Tally,
    pub(super) requested_bytes: Tally,
    pub(super) num_alloc_retries: i64,
    pub(super) num_ooms: i64,
    pub(super) num_sync_all_streams: i64,
    pub(super) num_device_alloc: i64,
    pub(super) num_device_free: i64,
}

impl Tallies {
    fn each(&mut self) -> [&mut Tally; 9] {
        [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ]
    }

    /// Whether an allocation would raise a peak.
    pub(super) fn would_peak(&self, pool: PoolKind, size: usize, requested: usize) -> bool {
        [
            (&self.allocation, 1),
            (&self.active, 1),
            (&self.allocated_bytes, size),
            (&self.active_bytes, size),
            (&self.requested_bytes, requested),
        ]
        .into_iter()
        .any(|(tally, amount)| tally.would_peak(pool, amount))
    }

    pub(super) fn stats(&self) -> MemoryStats {
        MemoryStats {
            allocation: self.allocation.array(),
            segment: self.segment.array(),
            active: self.active.array(),
            inactive_split: self.inactive_split.array(),
            allocated_bytes: self.allocated_bytes.array(),
            reserved_bytes: self.reserved_bytes.array(),
            active_bytes: self.active_bytes.array(),
            inactive_split_bytes: self.inactive_split_bytes.array(),
            requested_bytes: self.requested_bytes.array(),
            num_alloc_retries: self.num_alloc_retries,
            num_ooms: self.num_ooms,
            num_sync_all_streams: self.num_sync_all_streams,
            num_device_alloc: self.num_device_alloc,
            num_device_free: self.num_device_free,
        }
    }

    pub(super) fn reset_peak(&mut self) {
        self.each().into_iter().for_each(Tally::reset_peak);
    }

    /// Starts sums again from 0, and, as torch does, the counters of events.
    pub(super) fn reset_accumulated(&mut self) {
        self.each().into_iter().for_each(Tally::reset_accumulated);
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
    }
}

/// The statistics of pinned memory while they are counted.
#[derive(Debug)]
pub(super) struct PinnedTallies {
    active_requests: Counter,
    active_bytes: Counter,
    allocations: Counter,
    allocated_bytes: Counter,
    host_alloc_time: DurationStat,
    host_free_time: DurationStat,
    bucket_allocation: [i64; usize::BITS as usize],
}

impl PinnedTallies {
    pub(super) fn new() -> Self {
        Self {
            active_requests: Counter::default(),
            active_bytes: Counter::default(),
            allocations: Counter::default(),
            allocated_bytes: Counter::default(),
            host_alloc_time: DurationStat::default(),
            host_free_time: DurationStat::default(),
            bucket_allocation: [0; usize::BITS as usize],
        }
    }

    /// Counts a block that the vendor pinned.
    pub(super) fn pinned(&mut self, size: usize, took: Duration) {
        self.allocations.add(1);
        self.allocated_bytes.add(size);
        self.host_alloc_time.add(took);
        self.bucket_allocation[size.ilog2() as usize] += 1;
    }

    /// Counts a block that the vendor unpinned.
    pub(super) fn unpinned(&mut self, size: usize, took: Duration) {
        self.allocations.sub(1);
        self.allocated_bytes.sub(size);
        self.host_free_time.add(took);
    }

    /// Counts a block that a caller received.
    pub(super) fn handed_out(&mut self, size: usize) {
        self.active_requests.add(1);
        self.active_bytes.add(size);
    }

    /// Counts a block that is free again.
    pub(super) fn reusable(&mut self, size: usize) {
        self.active_requests.sub(1);
        self.active_bytes.sub(size);
    }

    pub(super) fn stats(&self) -> PinnedStats {
        PinnedStats {
            active_requests: self.active_requests.stat(),
            active_bytes: self.active_bytes.stat(),
            allocations: self.allocations.stat(),
            allocated_bytes: self.allocated_bytes.stat(),
            host_alloc_time: self.host_alloc_time,
            host_free_time: self.host_free_time,
            bucket_allocation: self.bucket_allocation,
        }
    }

    fn each(&mut self) -> [&mut Counter; 4] {
        [
            &mut self.active_requests,
            &mut self.active_bytes,
            &mut self.allocations,
            &mut self.allocated_bytes,
        ]
    }

    pub(super) fn reset_peak(&mut self) {
        self.each().into_iter().for_each(Counter::reset_peak);
    }

    /// Starts sums again from 0, and, as torch does, times and buckets.
    pub(super) fn reset_accumulated(&mut self) {
        self.each().into_iter().for_each(Counter::reset_accumulated);
        self.host_alloc_time = DurationStat::default();
        self.host_free_time = DurationStat::default();
        self.bucket_allocation = [0; usize::BITS as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_follows_from_allocated_and_current() {
        let mut tally = Tally::default();
        tally.add(PoolKind::Small, 10);
        tally.add(PoolKind::Large, 5);
        tally.sub(PoolKind::Small, 4);
        let array = tally.array();
        assert_eq!(
            array.all,
            Stat {
                current: 11,
                peak: 15,
                allocated: 15,
                freed: 4
            }
        );
        assert_eq!(
            array.small,
            Stat {
                current: 6,
                peak: 10,
                allocated: 10,
                freed: 4
            }
        );
        tally.reset_accumulated();
        tally.sub(PoolKind::Small, 6);
        tally.add(PoolKind::Small, 1);
        assert_eq!(
            tally.array().small,
            Stat {
                current: 1,
                peak: 10,
                allocated: 1,
                freed: 6
            }
        );
    }

    #[test]
    fn peak_of_both_is_not_the_sum_of_peaks() {
        let mut tally = Tally::default();
        tally.add(PoolKind::Small, 10);
        tally.sub(PoolKind::Small, 10);
        tally.add(PoolKind::Large, 7);
        assert_eq!(tally.array().all.peak, 10);
        tally.reset_peak();
        assert_eq!(tally.array().all.peak, 7);
        assert_eq!(tally.array().small.peak, 0);
    }
}
