//! The allocator's state of one device.

use crate::error::Error;

use super::block::BlockId;
use super::deferred::Deferred;
use super::pool::Pool;
use super::streams::Streams;

/// The state that the device's lock guards.
pub(super) struct DeviceState {
    pub(super) pool: Pool,
    pub(super) deferred: Deferred<BlockId>,
    /// Bytes that may be reserved.
    pub(super) limit: usize,
    /// Bytes of the device.
    pub(super) total: usize,
    /// The vendor's error when it last refused a segment.
    pub(super) refusal: Option<Error>,
}

impl DeviceState {
    /// Returns blocks that other streams have finished using to the cache. During a capture nothing may be asked.
    pub(super) fn poll(&mut self, streams: &Streams) {
        if self.pool.shelves.is_capturing() {
            return;
        }
        let Self { pool, deferred, .. } = self;
        deferred.poll(streams, |id| {
            let block = &mut pool.blocks[id];
            block.events -= 1;
            if block.events == 0 {
                pool.reclaim(id);
            }
        });
    }
}
