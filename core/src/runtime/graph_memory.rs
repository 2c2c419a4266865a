//! The memory of graphs.
//!
//! A graph uses the same addresses at every run. What is allocated on a captured stream therefore comes from memory of the
//! graph's own, which nothing else gets as long as the graph is there; several graphs may share it. Within it, each stream
//! has a lane of bins, as it has outside, so that a block that was freed during the capture serves the next allocation of
//! the same stream: the graph runs both in that order.

use std::collections::HashMap;

use super::block::Lane;
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

/// What is known of a lane beyond those of the streams.
#[derive(Debug, Default)]
struct LaneUse {
    /// The segments in the lane.
    segments: usize,
    /// Whether a graph may use the memory.
    kept: bool,
}

/// The lanes of a device that belong to graphs, and the captures that go on there.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    captures: Vec<Capture>,
    /// For each memory the number of its graphs, and its lanes by stream.
    memories: HashMap<MemoryId, (usize, Vec<(u64, Lane)>)>,
    /// From lane `MAX_STREAMS` on.
    uses: Vec<LaneUse>,
    /// Lanes without memory and owner.
    spare: Vec<Lane>,
}

fn place(lane: Lane) -> Option<usize> {
    (lane as usize).checked_sub(MAX_STREAMS)
}

impl Lanes {
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

    /// A capture has ended. Its graph uses the memory until [`Lanes::release`].
    pub(super) fn end(&mut self, id: u64) {
        self.captures.retain(|known| known.id != id);
    }

    /// A graph that used the memory is gone. After the last one the memory may be given back to the vendor.
    pub(super) fn release(&mut self, memory: MemoryId) {
        let Some((graphs, lanes)) = self.memories.get_mut(&memory) else {
            return;
        };
        *graphs -= 1;
        if *graphs > 0 {
            return;
        }
        for (_, lane) in std::mem::take(lanes) {
            let Some(place) = place(lane) else { continue };
            self.uses[place].kept = false;
            if self.uses[place].segments == 0 {
                self.spare.push(lane);
            }
        }
        self.memories.remove(&memory);
    }

    /// The lane of a stream within a memory, made when it is first asked for.
    pub(super) fn lane(&mut self, memory: MemoryId, stream: u64) -> Lane {
        let (_, lanes) = self.memories.entry(memory).or_default();
        if let Some((_, lane)) = lanes.iter().find(|(known, _)| *known == stream) {
            return *lane;
        }
        let lane = self.spare.pop().unwrap_or_else(|| {
            self.uses.push(LaneUse::default());
            (MAX_STREAMS + self.uses.len() - 1) as Lane
        });
        lanes.push((stream, lane));
        if let Some(place) = place(lane) {
            self.uses[place].kept = true;
        }
        lane
    }

    /// Whether the memory of a lane stays although it is free, because a graph uses it.
    #[inline]
    pub(super) fn keeps(&self, lane: Lane) -> bool {
        place(lane).is_some_and(|place| self.uses[place].kept)
    }

    /// A segment has been added to a lane.
    pub(super) fn grew(&mut self, lane: Lane) {
        if let Some(place) = place(lane) {
            self.uses[place].segments += 1;
        }
    }

    /// A segment of a lane has been given back.
    pub(super) fn shrank(&mut self, lane: Lane) {
        let Some(place) = place(lane) else { return };
        self.uses[place].segments -= 1;
        if self.uses[place].segments == 0 && !self.uses[place].kept {
            self.spare.push(lane);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_kept_until_the_last_graph_and_the_last_segment_are_gone() {
        let mut lanes = Lanes::default();
        lanes.begin(7, 1);
        assert!(lanes.is_capturing());
        assert_eq!((lanes.memory_of(7), lanes.memory_of(8)), (Some(1), None));
        let [a, b] = [0, 3].map(|stream| lanes.lane(1, stream));
        assert_eq!(
            [a, b].map(|lane| lane as usize),
            [MAX_STREAMS, MAX_STREAMS + 1]
        );
        assert_eq!(lanes.lane(1, 3), b);
        lanes.grew(a);
        lanes.end(7);
        lanes.begin(8, 1);
        lanes.end(8);
        assert!(!lanes.is_capturing());
        lanes.release(1);
        assert!(lanes.keeps(a) && lanes.keeps(b), "another graph uses them");
        lanes.release(1);
        assert!(!lanes.keeps(a) && !lanes.keeps(b));
        assert_eq!(lanes.spare, [b], "the other one has a segment");
        lanes.shrank(a);
        assert_eq!(lanes.spare, [b, a]);
        lanes.begin(9, 2);
        assert_eq!((lanes.lane(2, 0), lanes.lane(2, 1)), (a, b));
    }

    #[test]
    fn the_lanes_of_streams_belong_to_nobody() {
        let mut lanes = Lanes::default();
        lanes.grew(0);
        lanes.shrank(0);
        assert!(!lanes.keeps(0));
        lanes.release(5);
        assert!(lanes.spare.is_empty());
    }
}
