//! The memory of graphs.
//!
//! A graph uses the same addresses at every run. What is allocated on a captured stream therefore comes from memory of the
//! graph's own, which nothing else gets as long as the graph is there; several graphs may share it. Within it, each stream
//! has a shelf of bins, as it has outside, so that a block that was freed during the capture serves the next allocation of
//! the same stream: the graph runs both in that order.

use std::collections::HashMap;

use super::block::Shelf;
use super::streams::MAX_STREAMS;

/// Names memory that graphs share. Never 0.
pub type MemoryId = u64;

/// A capture that goes on.
#[derive(Debug, Clone, Copy)]
struct Capture {
    /// The vendor's number of the capture.
    id: u64,
    memory: MemoryId,
}

/// The use of a shelf beyond those of the streams.
#[derive(Debug, Default)]
struct ShelfUse {
    /// The segments in the shelf.
    segments: usize,
    /// Whether a graph may use the memory.
    retained: bool,
}

/// The shelves of a device that belong to graphs, and the captures that go on there.
#[derive(Debug, Default)]
pub(super) struct Shelves {
    captures: Vec<Capture>,
    /// For each memory the number of its graphs, and its shelves by stream.
    memories: HashMap<MemoryId, (usize, Vec<(u64, Shelf)>)>,
    /// From shelf `MAX_STREAMS` on.
    uses: Vec<ShelfUse>,
    /// Shelves without memory and owner.
    spare: Vec<Shelf>,
}

fn place(shelf: Shelf) -> Option<usize> {
    (shelf as usize).checked_sub(MAX_STREAMS)
}

impl Shelves {
    /// Whether a stream of the device is being captured.
    #[inline]
    pub(super) fn is_capturing(&self) -> bool {
        !self.captures.is_empty()
    }

    /// The memory for what the streams of a capture allocate.
    pub(super) fn memory_of(&self, capture: u64) -> Option<MemoryId> {
        let found = self.captures.iter().find(|known| known.id == capture);
        found.map(|found| found.memory)
    }

    /// A capture has begun, whose graph uses the memory.
    pub(super) fn begin(&mut self, id: u64, memory: MemoryId) {
        self.captures.push(Capture { id, memory });
        self.memories.entry(memory).or_default().0 += 1;
    }

    /// A capture has ended. Its graph uses the memory until [`Shelves::release`].
    pub(super) fn end(&mut self, id: u64) {
        self.captures.retain(|known| known.id != id);
    }

    /// A graph that used the memory is gone. After the last one the memory may be given back to the vendor.
    pub(super) fn release(&mut self, memory: MemoryId) {
        let Some((graphs, shelves)) = self.memories.get_mut(&memory) else {
            return;
        };
        *graphs -= 1;
        if *graphs > 0 {
            return;
        }
        for (_, shelf) in std::mem::take(shelves) {
            let Some(place) = place(shelf) else { continue };
            self.uses[place].retained = false;
            if self.uses[place].segments == 0 {
                self.spare.push(shelf);
            }
        }
        self.memories.remove(&memory);
    }

    /// The shelf of a stream within a memory, made when it is first asked for.
    pub(super) fn shelf(&mut self, memory: MemoryId, stream: u64) -> Shelf {
        let (_, shelves) = self.memories.entry(memory).or_default();
        if let Some((_, shelf)) = shelves.iter().find(|(known, _)| *known == stream) {
            return *shelf;
        }
        let shelf = self.spare.pop().unwrap_or_else(|| {
            self.uses.push(ShelfUse::default());
            (MAX_STREAMS + self.uses.len() - 1) as Shelf
        });
        shelves.push((stream, shelf));
        if let Some(place) = place(shelf) {
            self.uses[place].retained = true;
        }
        shelf
    }

    /// Whether the memory of a shelf stays although it is free, because a graph uses it.
    #[inline]
    pub(super) fn keeps(&self, shelf: Shelf) -> bool {
        place(shelf).is_some_and(|place| self.uses[place].retained)
    }

    /// A segment has been added to a shelf.
    pub(super) fn grew(&mut self, shelf: Shelf) {
        if let Some(place) = place(shelf) {
            self.uses[place].segments += 1;
        }
    }

    /// A segment of a shelf has been given back.
    pub(super) fn shrank(&mut self, shelf: Shelf) {
        let Some(place) = place(shelf) else { return };
        self.uses[place].segments -= 1;
        if self.uses[place].segments == 0 && !self.uses[place].retained {
            self.spare.push(shelf);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_shelf_is_kept_until_the_last_graph_and_the_last_segment_are_gone() {
        let mut shelves = Shelves::default();
        shelves.begin(7, 1);
        assert!(shelves.is_capturing());
        assert_eq!(
            (shelves.memory_of(7), shelves.memory_of(8)),
            (Some(1), None)
        );
        let [a, b] = [0, 3].map(|stream| shelves.shelf(1, stream));
        assert_eq!(
            [a, b].map(|shelf| shelf as usize),
            [MAX_STREAMS, MAX_STREAMS + 1]
        );
        assert_eq!(shelves.shelf(1, 3), b);
        shelves.grew(a);
        shelves.end(7);
        shelves.begin(8, 1);
        shelves.end(8);
        assert!(!shelves.is_capturing());
        shelves.release(1);
        assert!(
            shelves.keeps(a) && shelves.keeps(b),
            "another graph uses them"
        );
        shelves.release(1);
        assert!(!shelves.keeps(a) && !shelves.keeps(b));
        assert_eq!(shelves.spare, [b], "the other one has a segment");
        shelves.shrank(a);
        assert_eq!(shelves.spare, [b, a]);
        shelves.begin(9, 2);
        assert_eq!((shelves.shelf(2, 0), shelves.shelf(2, 1)), (a, b));
    }

    #[test]
    fn the_shelves_of_streams_belong_to_nobody() {
        let mut shelves = Shelves::default();
        shelves.grew(0);
        shelves.shrank(0);
        assert!(!shelves.keeps(0));
        shelves.release(5);
        assert!(shelves.spare.is_empty());
    }
}
