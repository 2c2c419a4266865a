//! Blocks: ranges of device memory, kept apart from the memory they describe.
//!
//! The allocator names a block by its slot. Callers hold a [`BlockHandle`], which also carries a
//! generation, so that a second free of a block, and the free of a block never allocated, are errors
//! (see [`super::leases`]).

use std::ops::{Index, IndexMut};

/// A slot in [`Blocks`].
pub(super) type BlockId = u32;

/// The id that stands for no block.
pub(super) const NONE: BlockId = u32::MAX;

/// A place for bins in a [`super::pool::Pool`].
pub(super) type Shelf = u32;

/// Which of the two pools a block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PoolKind {
    /// Blocks of at most 1 MiB, cut from segments of 2 MiB.
    Small = 0,
    /// Everything else.
    Large = 1,
}

impl PoolKind {
    /// `"small"` or `"large"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

/// The state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The slot is empty.
    Vacant,
    /// The block is free, and in a bin.
    Free,
    /// A caller holds the block, or a magazine keeps it.
    Allocated,
    /// The caller has freed the block, but other streams still use it.
    Deferred,
    /// The block is a whole segment, on its way back to the vendor.
    Retired,
}

/// One range of device memory.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) address: usize,
    pub(super) size: usize,
    /// Bytes that the caller asked for, while the block is allocated.
    pub(super) requested: usize,
    /// Other streams that used the block, one bit each.
    pub(super) uses: u128,
    /// Neighbours in the same segment, by address.
    pub(super) prev: BlockId,
    pub(super) next: BlockId,
    /// Neighbours in the same bin.
    pub(super) bin_prev: BlockId,
    pub(super) bin_next: BlockId,
    /// The stream in whose order the block is reused.
    pub(super) stream: u32,
    /// The bins that the block returns to: those of the stream, or of the stream within the memory of graphs.
    pub(super) shelf: Shelf,
    /// Events that must pass before a deferred block is free.
    pub(super) events: u32,
    pub(super) state: State,
    pub(super) pool: PoolKind,
}

impl Block {
    /// A free block alone in its segment.
    pub(super) fn free(
        address: usize,
        size: usize,
        (stream, shelf): (u32, Shelf),
        pool: PoolKind,
    ) -> Self {
        Self {
            address,
            size,
            requested: 0,
            uses: 0,
            prev: NONE,
            next: NONE,
            bin_prev: NONE,
            bin_next: NONE,
            stream,
            shelf,
            events: 0,
            state: State::Free,
            pool,
        }
    }

    /// Whether the block shares its segment with other blocks.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }
}

/// The blocks of one device. Slots are reused.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    slots: Vec<Block>,
    vacant: Vec<BlockId>,
}

impl Blocks {
    /// Stores a block.
    #[inline]
    pub(super) fn insert(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.vacant.pop() {
            self[id] = block;
            return id;
        }
        let id = BlockId::try_from(self.slots.len()).unwrap_or(NONE);
        assert!(id != NONE, "more than four billion blocks");
        self.slots.push(block);
        id
    }

    /// Empties a slot.
    #[inline]
    pub(super) fn remove(&mut self, id: BlockId) {
        self[id].state = State::Vacant;
        self.vacant.push(id);
    }

    /// All blocks that exist.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        let slots = self.slots.iter().enumerate();
        slots
            .map(|(id, block)| (id as BlockId, block))
            .filter(|(_, b)| b.state != State::Vacant)
    }
}

impl Index<BlockId> for Blocks {
    type Output = Block;
    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.slots[id as usize]
    }
}

impl IndexMut<BlockId> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.slots[id as usize]
    }
}

/// Names an allocation: 12 bits of device (plus one, so that no handle is 0), 20 bits of
/// generation, 32 bits of slot. Fits a pointer, is never dereferenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHandle(u64);

impl BlockHandle {
    pub(super) const GENERATION_BITS: u32 = 20;
    pub(super) const GENERATION_MASK: u32 = (1 << Self::GENERATION_BITS) - 1;
    /// Devices a handle can name.
    pub(super) const MAX_DEVICES: usize = (1 << 12) - 1;

    #[inline]
    pub(super) fn new(device: usize, generation: u32, id: BlockId) -> Self {
        let generation = u64::from(generation & Self::GENERATION_MASK);
        Self((device as u64 + 1) << 52 | generation << 32 | u64::from(id))
    }

    /// The handle behind the bits of [`BlockHandle::to_bits`]; `None` for 0.
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits >> 52 != 0).then_some(Self(bits))
    }

    /// The handle as an integer, which is never 0.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The device of the allocation.
    #[inline]
    pub fn device(self) -> usize {
        (self.0 >> 52) as usize - 1
    }

    #[inline]
    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & Self::GENERATION_MASK
    }

    #[inline]
    pub(super) fn id(self) -> BlockId {
        self.0 as BlockId
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_its_parts() {
        let handle = BlockHandle::new(7, 0xFFFF_FFFF, 42);
        assert_eq!(
            (handle.device(), handle.generation(), handle.id()),
            (7, 0xF_FFFF, 42)
        );
        assert_eq!(BlockHandle::from_bits(handle.to_bits()), Some(handle));
        assert_eq!(BlockHandle::from_bits(0), None);
    }
}
