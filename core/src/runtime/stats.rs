//! Allocator statistics, with the names and meanings of torch's `DeviceStats`.

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

/// Everything the allocator counts for one device.
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

/// Running value of one pool. What was freed follows from what was allocated and what is left, so
/// that a decrease touches one field.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    current: i64,
    peak: i64,
    allocated: i64,
    /// `current` when the accumulated values were reset.
    at_reset: i64,
}

impl Counter {
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
        let counter = &mut self.pools[pool as usize];
        counter.current += amount as i64;
        counter.allocated += amount as i64;
        counter.peak = counter.peak.max(counter.current);
        self.peak = self.peak.max(self.current());
    }

    #[inline]
    pub(super) fn sub(&mut self, pool: PoolKind, amount: usize) {
        self.pools[pool as usize].current -= amount as i64;
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
        for counter in &mut self.pools {
            counter.peak = counter.current;
        }
        self.peak = self.current();
    }

    fn reset_accumulated(&mut self) {
        for counter in &mut self.pools {
            counter.allocated = 0;
            counter.at_reset = counter.current;
        }
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

    /// As torch: the event counters start again too.
    pub(super) fn reset_accumulated(&mut self) {
        self.each().into_iter().for_each(Tally::reset_accumulated);
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
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
