//! The live allocations of the process by address, for callers that keep the address alone.
//!
//! A tree of tables like those by which a processor finds pages. There are no locks, so threads do not wait for each other,
//! and a forked child finds all that its parent had.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

use super::block::BlockHandle;
use super::vendor::ALIGNMENT;

/// Entries of a table, each for as many bits of an address.
const ENTRIES: usize = 1 << BITS;
const BITS: u32 = 12;
/// Blocks begin at multiples of [`ALIGNMENT`].
const BLOCK_SHIFT: u32 = ALIGNMENT.trailing_zeros();
/// Bits of an address that the tree has: the processors of today give a process 56.
const ADDRESS_BITS: u32 = BLOCK_SHIFT + 4 * BITS;

/// Blocks by the address of their first byte.
#[derive(Debug)]
pub struct LiveBlocks([OnceLock<Table<Table<Blocks>>>; ENTRIES]);

/// Tables of the next level, made when first needed and kept: one of the lowest level for each 2 MiB in which a block has
/// begun.
#[derive(Debug)]
struct Table<T>(Box<[OnceLock<T>; ENTRIES]>);

/// The bits of the handles of the blocks that begin at neighbouring places; 0 where none does.
#[derive(Debug)]
struct Blocks(Box<[AtomicU64; ENTRIES]>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Box::new([const { OnceLock::new() }; ENTRIES]))
    }
}

impl Default for Blocks {
    fn default() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; ENTRIES]))
    }
}

impl Default for LiveBlocks {
    fn default() -> Self {
        Self::new()
    }
}

/// The place of an address in the tables of a level, counted from the lowest.
#[inline]
fn place(address: usize, level: u32) -> usize {
    address >> (BLOCK_SHIFT + level * BITS) & (ENTRIES - 1)
}

impl LiveBlocks {
    /// No block.
    pub const fn new() -> Self {
        Self([const { OnceLock::new() }; ENTRIES])
    }

    /// The place of the handle of the block that begins at `address`, unless no block ever began near it.
    #[inline]
    fn entry(&self, address: usize) -> Option<&AtomicU64> {
        if address >> ADDRESS_BITS != 0 || address % ALIGNMENT != 0 {
            return None;
        }
        let table = self.0[place(address, 3)].get()?;
        let table = table.0[place(address, 2)].get()?;
        let blocks = table.0[place(address, 1)].get()?;
        Some(&blocks.0[place(address, 0)])
    }

    /// The same, with tables made for it.
    #[cold]
    fn make_entry(&self, address: usize) -> Result<&AtomicU64> {
        if address >> ADDRESS_BITS != 0 || address % ALIGNMENT != 0 {
            let message = format!("a block begins at {address:#x}");
            return Err(Error::internal("mem_alloc_at", message).with_hint(format!(
                "blocks begin at multiples of {ALIGNMENT} below 2^{ADDRESS_BITS}; mem_alloc does without that"
            )));
        }
        let table = self.0[place(address, 3)].get_or_init(Table::default);
        let table = table.0[place(address, 2)].get_or_init(Table::default);
        let blocks = table.0[place(address, 1)].get_or_init(Blocks::default);
        Ok(&blocks.0[place(address, 0)])
    }

    /// Notes a block that begins at `address`, where no live one does. An error for an address that no block of a vendor has.
    #[inline]
    pub fn insert(&self, address: usize, block: BlockHandle) -> Result<()> {
        let entry = match self.entry(address) {
            Some(entry) => entry,
            None => self.make_entry(address)?,
        };
        entry.store(block.to_bits(), Ordering::Release);
        Ok(())
    }

    /// The live block that begins at `address`.
    #[inline]
    pub fn find(&self, address: usize) -> Option<BlockHandle> {
        BlockHandle::from_bits(self.entry(address)?.load(Ordering::Acquire))
    }

    /// Removes the block that begins at `address`; of several threads one gets it. To be called before it is freed:
    /// afterwards another thread may get the address.
    #[inline]
    pub fn remove(&self, address: usize) -> Option<BlockHandle> {
        BlockHandle::from_bits(self.entry(address)?.swap(0, Ordering::AcqRel))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn handle(id: u64) -> BlockHandle {
        BlockHandle::from_bits(1 << 52 | id).expect("not 0")
    }

    /// Addresses that share all tables, some, and none.
    fn addresses() -> impl Iterator<Item = usize> {
        let near = (1..200).map(|i| i * ALIGNMENT);
        near.chain((BLOCK_SHIFT..ADDRESS_BITS).map(|bit| (1 << bit) + (8 << 20)))
    }

    #[test]
    fn a_block_is_found_until_it_is_removed() {
        let live = LiveBlocks::new();
        for address in addresses() {
            assert_eq!(live.find(address), None, "{address:#x}");
            assert_eq!(live.remove(address), None, "{address:#x}");
            live.insert(address, handle(address as u64 >> 9))
                .expect("a block's address");
        }
        assert_eq!(live.find(ALIGNMENT + 1), None);
        assert_eq!(live.find((1 << ADDRESS_BITS) + ALIGNMENT), None);
        for address in addresses() {
            let block = Some(handle(address as u64 >> 9));
            assert_eq!(live.find(address), block, "{address:#x}");
            assert_eq!(live.remove(address), block, "{address:#x}");
            assert_eq!(live.remove(address), None, "{address:#x}");
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        let live = LiveBlocks::new();
        for address in [ALIGNMENT + 8, 1 << ADDRESS_BITS] {
            let error = live.insert(address, handle(1)).expect_err("no block's");
            assert!(error.report().contains(&format!("{address:#x}")), "{error}");
            assert_eq!(live.find(address), None);
        }
    }

    #[test]
    fn of_threads_that_remove_a_block_one_gets_it() {
        let live = LiveBlocks::new();
        for round in 0..200 {
            let address = (1 + round) << 21;
            live.insert(address, handle(7)).expect("a block's address");
            let removed = std::thread::scope(|scope| {
                let threads = [(); 2].map(|()| scope.spawn(|| live.remove(address)));
                threads.map(|thread| thread.join().expect("no panic"))
            });
            assert_eq!(removed.iter().flatten().count(), 1);
        }
    }
}
