//! The live allocations of the process by address, for callers that keep the address alone.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::lock_api::RawMutex as _;
use parking_lot::{Mutex, RawMutex};

use super::block::BlockHandle;

/// A power of two.
const SHARDS: usize = 16;

/// Blocks by the address of their first byte.
#[derive(Debug)]
pub struct LiveBlocks([Shard; SHARDS]);

/// On cache lines of its own, so that threads do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<HashMap<usize, BlockHandle, BuildHasherDefault<AddressHasher>>>);

/// Addresses of blocks are multiples of 512: Fibonacci hashing spreads the other bits.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }
    #[inline]
    fn write_usize(&mut self, address: usize) {
        self.0 = spread(self.0 ^ address as u64);
    }
}

#[inline]
fn spread(address: u64) -> u64 {
    (address >> 9)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(32)
}

/// The highest bits of the product, which depend on all bits of the address. The map of a shard chooses its
/// bucket by other bits.
#[inline]
fn shard_of(address: usize) -> usize {
    (spread(address as u64) >> 28) as usize % SHARDS
}

impl Default for LiveBlocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Shard::default()))
    }
}

impl LiveBlocks {
    #[inline]
    fn shard(
        &self,
        address: usize,
    ) -> &Mutex<HashMap<usize, BlockHandle, BuildHasherDefault<AddressHasher>>> {
        &self.0[shard_of(address)].0
    }

    /// Notes a block that begins at `address`, where no live one does.
    #[inline]
    pub fn insert(&self, address: usize, block: BlockHandle) {
        self.shard(address).lock().insert(address, block);
    }

    /// The live block that begins at `address`.
    #[inline]
    pub fn find(&self, address: usize) -> Option<BlockHandle> {
        self.shard(address).lock().get(&address).copied()
    }

    /// Removes the block that begins at `address`. To be called before it is freed: afterwards another
    /// thread may get the address.
    #[inline]
    pub fn remove(&self, address: usize) -> Option<BlockHandle> {
        self.shard(address).lock().remove(&address)
    }

    /// Waits until no thread is inside, and keeps all out until the end of the fork that follows.
    pub fn hold_for_fork(&self) {
        for shard in &self.0 {
            std::mem::forget(shard.0.lock());
        }
    }

    /// Ends what `hold_for_fork` began, in the parent.
    ///
    /// # Safety
    /// This thread called `hold_for_fork`, and has not ended it yet.
    pub unsafe fn release_after_fork(&self) {
        for shard in &self.0 {
            // SAFETY: the guard was forgotten while the lock was held, says the caller.
            unsafe { shard.0.force_unlock() }
        }
    }

    /// Ends what `hold_for_fork` began, in the child: nobody waits for the locks there, although it may
    /// look so.
    ///
    /// # Safety
    /// The thread that forked this process called `hold_for_fork`; there is no other thread.
    pub unsafe fn release_after_fork_in_child(&self) {
        for shard in &self.0 {
            // SAFETY: nobody else can look at the lock, says the caller.
            unsafe {
                let raw = std::ptr::from_ref(shard.0.raw()).cast_mut();
                raw.write(RawMutex::INIT);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn handle(id: u64) -> BlockHandle {
        BlockHandle::from_bits(1 << 52 | id).expect("not 0")
    }

    #[test]
    fn a_block_is_found_until_it_is_removed() {
        let live = LiveBlocks::default();
        let addresses = (1..200).map(|i| i * 512);
        for address in addresses.clone() {
            live.insert(address, handle(address as u64));
        }
        assert_eq!(live.find(513), None);
        for address in addresses {
            assert_eq!(live.find(address), Some(handle(address as u64)));
            assert_eq!(live.remove(address), Some(handle(address as u64)));
            assert_eq!(live.remove(address), None);
        }
    }

    #[test]
    fn neighbours_are_spread_over_the_shards() {
        for distance in [512, 2 << 20] {
            let used: std::collections::HashSet<_> =
                (1..200).map(|i| shard_of(i * distance)).collect();
            assert_eq!(used.len(), SHARDS, "{distance}");
        }
    }

    #[test]
    fn a_fork_waits_and_both_sides_go_on() {
        let live = LiveBlocks::default();
        live.hold_for_fork();
        assert!(live.0.iter().all(|shard| shard.0.is_locked()));
        // SAFETY: held above, by this thread.
        unsafe { live.release_after_fork() };
        live.insert(512, handle(1));
        live.hold_for_fork();
        // SAFETY: held above; no other thread knows of it.
        unsafe { live.release_after_fork_in_child() };
        assert_eq!(live.remove(512), Some(handle(1)));
    }
}
