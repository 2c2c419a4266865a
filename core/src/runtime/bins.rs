//! Free blocks of one pool, by size: a two-level index after TLSF (Masmano et al., ECRTS 2004).
//!
//! Sizes are multiples of 512 bytes. Row 0 has one class for each multiple below 16; each later row
//! is a power of two cut into 16 classes. Two bitmaps find the first class with a block in constant
//! time. Blocks of a class form a list linked through the blocks themselves, last freed first.

use super::block::{BlockId, Blocks, NONE};

const COLUMNS: usize = 16;
const ROWS: usize = 40;
/// Blocks looked at in a class for the smallest that fits.
const SCAN: usize = 16;

/// The index. Holds no block itself: `Blocks` does.
#[derive(Debug)]
pub(super) struct Bins {
    rows: u64,
    columns: [u16; ROWS],
    heads: [[BlockId; COLUMNS]; ROWS],
}

/// The class of a size: row and column.
#[inline]
fn class_of(size: usize) -> (usize, usize) {
    let units = size >> 9;
    if units < COLUMNS {
        return (0, units);
    }
    let log = units.ilog2() as usize;
    (log - 3, (units >> (log - 4)) & (COLUMNS - 1))
}

impl Bins {
    pub(super) fn new() -> Self {
        Self {
            rows: 0,
            columns: [0; ROWS],
            heads: [[NONE; COLUMNS]; ROWS],
        }
    }

    /// Adds a free block.
    #[inline]
    pub(super) fn insert(&mut self, blocks: &mut Blocks, id: BlockId) {
        let (row, column) = class_of(blocks[id].size);
        let head = self.heads[row][column];
        blocks[id].bin_prev = NONE;
        blocks[id].bin_next = head;
        if head != NONE {
            blocks[head].bin_prev = id;
        }
        self.heads[row][column] = id;
        self.columns[row] |= 1 << column;
        self.rows |= 1 << row;
    }

    /// Takes a block out.
    #[inline]
    pub(super) fn remove(&mut self, blocks: &mut Blocks, id: BlockId) {
        let (prev, next) = (blocks[id].bin_prev, blocks[id].bin_next);
        if next != NONE {
            blocks[next].bin_prev = prev;
        }
        if prev != NONE {
            blocks[prev].bin_next = next;
            return;
        }
        let (row, column) = class_of(blocks[id].size);
        self.heads[row][column] = next;
        if next == NONE {
            self.columns[row] &= !(1 << column);
            if self.columns[row] == 0 {
                self.rows &= !(1 << row);
            }
        }
    }

    /// A block of at least `size` bytes, as small as a bounded search finds. It stays in.
    #[inline]
    pub(super) fn find(&self, blocks: &Blocks, size: usize) -> Option<BlockId> {
        let (row, column) = class_of(size);
        let head = self.heads[row][column];
        if head != NONE {
            if let Some(id) = self.scan(blocks, head, size) {
                return Some(id);
            }
        }
        let (row, column) = self.next_class(row, column)?;
        self.scan(blocks, self.heads[row][column], size)
    }

    /// The first class above `(row, column)` that has a block; each of its blocks is large enough.
    #[inline]
    fn next_class(&self, row: usize, column: usize) -> Option<(usize, usize)> {
        let columns = u32::from(self.columns[row]) & (!1_u32 << column);
        if columns != 0 {
            return Some((row, columns.trailing_zeros() as usize));
        }
        let rows = self.rows & (!1_u64 << row);
        if rows == 0 {
            return None;
        }
        let row = rows.trailing_zeros() as usize;
        Some((row, self.columns[row].trailing_zeros() as usize))
    }

    /// The smallest block that fits among the first of a class.
    #[inline]
    fn scan(&self, blocks: &Blocks, head: BlockId, size: usize) -> Option<BlockId> {
        let mut best = None;
        let mut best_size = usize::MAX;
        let mut id = head;
        for _ in 0..SCAN {
            let block = &blocks[id];
            if block.size == size {
                return Some(id);
            }
            if block.size > size && block.size < best_size {
                best_size = block.size;
                best = Some(id);
            }
            id = block.bin_next;
            if id == NONE {
                break;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::{Block, PoolKind};
    use super::*;

    fn with_sizes(sizes: &[usize]) -> (Bins, Blocks, Vec<BlockId>) {
        let (mut bins, mut blocks) = (Bins::new(), Blocks::default());
        let ids: Vec<_> = sizes
            .iter()
            .map(|&size| blocks.insert(Block::free(0x1000, size, (0, 0), PoolKind::Large)))
            .collect();
        ids.iter().for_each(|&id| bins.insert(&mut blocks, id));
        (bins, blocks, ids)
    }

    #[test]
    fn classes_grow_with_size_and_stay_in_the_table() {
        let mut last = (0, 0);
        for units in 1..100_000_usize {
            let class = class_of(units << 9);
            assert!(class >= last, "{units} units");
            last = class;
        }
        assert!(class_of(usize::MAX >> 16).0 < ROWS);
    }

    #[test]
    fn finds_the_smallest_that_fits() {
        let (bins, blocks, ids) = with_sizes(&[512, 40 << 20, 4096, 3 << 20]);
        let find = |size| bins.find(&blocks, size);
        assert_eq!(find(512), Some(ids[0]));
        assert_eq!(find(1024), Some(ids[2]));
        assert_eq!(find(2 << 20), Some(ids[3]));
        assert_eq!(find(39 << 20), Some(ids[1]));
        assert_eq!(find(41 << 20), None);
    }

    #[test]
    fn a_removed_block_is_not_found() {
        let (mut bins, mut blocks, ids) = with_sizes(&[512, 512, 512]);
        for &id in &[ids[1], ids[2], ids[0]] {
            bins.remove(&mut blocks, id);
            assert_ne!(bins.find(&blocks, 512), Some(id));
        }
        assert_eq!(bins.rows, 0);
    }
}
