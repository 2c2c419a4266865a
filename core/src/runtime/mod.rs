//! Devices, memory, streams and events over any vendor.
//!
//! A vendor implements the traits of [`vendor`]. [`Runtime`] puts a caching allocator, a pinned-memory
//! cache and a stream table over a vendor; [`process`] holds the one runtime of the process.

mod allocator;
mod bins;
mod block;
mod deferred;
mod device_state;
mod graph_memory;
mod graphs;
pub mod launch;
mod leases;
mod live;
mod magazines;
mod pinned;
mod place;
mod pool;
pub mod process;
pub mod ranges;
mod report;
mod stats;
mod streams;
pub mod sync;
pub mod vendor;

#[cfg(all(test, not(loom)))]
mod allocator_tests;
#[cfg(all(test, loom))]
mod loom_tests;

use std::sync::Arc;

pub use allocator::{Allocation, CachingAllocator};
pub use block::{BlockHandle, PoolKind};
pub use graph_memory::MemoryId;
pub use graphs::StreamGraph;
pub use live::LiveBlocks;
pub use pinned::{PinnedAllocation, PinnedAllocator};
pub use place::Place;
pub use stats::{DurationStat, MemoryStats, PinnedStats, Stat, StatArray};
pub use streams::Streams;
pub use vendor::{
    ALIGNMENT, Capture, CaptureMode, DeviceProperties, Event, Exported, Graph, HostFn,
    LibraryHandle, MemoryInfo, Posted, Sharing, Stream, Vendor, launch_closure,
};

use crate::error::Result;

/// One vendor with its streams and its allocators: all that an adapter needs.
pub struct Runtime {
    vendor: Arc<dyn Vendor>,
    streams: Arc<Streams>,
    memory: CachingAllocator<dyn Vendor>,
    pinned: PinnedAllocator,
}

impl Runtime {
    /// A runtime with nothing allocated and no stream started.
    pub fn new(vendor: Arc<dyn Vendor>) -> Result<Self> {
        let streams = Arc::new(Streams::new(Arc::clone(&vendor)));
        let memory = CachingAllocator::new(Arc::clone(&vendor), Arc::clone(&streams))?;
        let pinned = PinnedAllocator::new(Arc::clone(&streams));
        Ok(Self {
            vendor,
            streams,
            memory,
            pinned,
        })
    }

    /// The vendor.
    pub fn vendor(&self) -> &dyn Vendor {
        &*self.vendor
    }

    /// Streams by id.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Device memory.
    pub fn memory(&self) -> &CachingAllocator<dyn Vendor> {
        &self.memory
    }

    /// Pinned memory.
    pub fn pinned(&self) -> &PinnedAllocator {
        &self.pinned
    }
}
