//! One rank in the shared memory of its group: it waits for other ranks, and notices when one has ended or left.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::flag::{Flag, reached};
use super::peers::Peer;
use super::segment::{Call, Segment};
use crate::communicator::Other;
use crate::{Error, ErrorKind, Kind, Result};

/// The time a rank sleeps before it checks whether the others still live.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// The bits of a call's number in [`Control::queued`](super::segment::Control).
const NUMBER_BITS: u32 = 56;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// Turns of the spinning loop before a rank sleeps in the kernel: about 20 µs with a core for every rank, fewer
/// turns with fewer cores, where a spinning rank takes the time of the rank it waits for.
const SPIN_ALONE: u32 = 1500;
const SPIN_CROWDED: u32 = 20;

/// A rank, the memory it shares with the others, and their processes.
pub struct Member {
    pub(super) segment: Segment,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) group: String,
    /// The process of each rank; none for this rank.
    pub(super) peers: Vec<Option<Peer>>,
    spin: u32,
}

impl Member {
    pub(super) fn new(
        segment: Segment,
        rank: usize,
        size: usize,
        group: String,
        peers: Vec<Option<Peer>>,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            segment,
            rank,
            size,
            group,
            peers,
            spin: if size <= cores {
                SPIN_ALONE
            } else {
                SPIN_CROWDED
            },
        }
    }

    /// The other ranks, beginning with the next one, so that not all ranks read from one rank at once.
    #[inline]
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |distance| (rank + distance) % size)
    }

    /// Waits until a flag that `peer` advances has reached `target`.
    #[inline]
    pub(super) fn wait(
        &self,
        flag: &Flag,
        target: u32,
        peer: usize,
        deadline: Instant,
    ) -> Result<()> {
        for _ in 0..self.spin {
            if reached(flag.get(), target) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let mut slept = false;
        loop {
            let seen = flag.get();
            if reached(seen, target) {
                return Ok(());
            }
            self.check_abort()?;
            if slept && (self.has_left(peer) || self.is_gone(peer)) {
                // The rank may have published just before it left, or its process ended.
                if reached(flag.get(), target) {
                    return Ok(());
                }
                return Err(self.lost(peer));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    ErrorKind::Timeout,
                    format!("Timed out waiting for {}", self.describe(peer)),
                )
                .due_to(peer));
            }
            flag.sleep(seen, left.min(LOOK_AFTER));
            slept = true;
        }
    }

    /// Fails when a rank has aborted the group.
    #[inline]
    pub(super) fn check_abort(&self) -> Result<()> {
        match self.segment.aborted() {
            None => Ok(()),
            Some((by, reason)) => {
                let who = if by == self.rank {
                    "this rank".to_owned()
                } else {
                    format!("rank {by}")
                };
                Err(Error::new(
                    ErrorKind::Aborted,
                    format!("{who} aborted the group: {reason}"),
                )
                .due_to(by))
            }
        }
    }

    pub(super) fn is_gone(&self, peer: usize) -> bool {
        self.peers[peer].as_ref().is_some_and(Peer::is_gone)
    }

    /// Whether the rank has taken leave of the group, whose calls it takes part in no more.
    pub(super) fn has_left(&self, peer: usize) -> bool {
        self.segment.control(peer).left.load(Ordering::Acquire) != 0
    }

    /// Tells the others of a call that is queued on a device.
    pub(super) fn note_queued(&self, kind: Kind, sequence: u64) {
        let number = (sequence + 1) & NUMBER;
        let word = ((kind as u64) << NUMBER_BITS) | number;
        let control = self.segment.control(self.rank);
        control.queued.store(word, Ordering::Relaxed);
    }

    /// The other ranks, in order.
    pub(super) fn known(&self) -> Vec<Other> {
        let mut ranks: Vec<usize> = self.others().collect();
        ranks.sort_unstable();
        let know = |rank: usize| {
            let control = self.segment.control(rank);
            let word = control.queued.load(Ordering::Relaxed);
            let kind = Kind::from_code((word >> NUMBER_BITS) as u32);
            Other {
                rank,
                process: self.peers[rank].as_ref().map_or(0, Peer::pid),
                is_lost: self.is_gone(rank) && !self.has_left(rank),
                queued: kind
                    .filter(|_| word != 0)
                    .map(|kind| (kind, (word & NUMBER).wrapping_sub(1))),
            }
        };
        ranks.into_iter().map(know).collect()
    }

    pub(super) fn lost(&self, peer: usize) -> Error {
        let who = self.describe(peer);
        let what = if self.has_left(peer) {
            format!("{who} has left the group")
        } else {
            format!("the process of {who} has ended")
        };
        Error::new(ErrorKind::PeerLost, what).due_to(peer)
    }

    /// The last collective of a rank, for messages and reports: the rank may be writing its next one.
    pub(super) fn last_call(&self, rank: usize) -> Option<Call> {
        let control = self.segment.control(rank);
        if control.step.get() == 0 {
            return None;
        }
        // A call of several steps is described in its first, and the other place has an older call.
        // SAFETY: every value is a valid one.
        let calls = control
            .call
            .each_ref()
            .map(|call| unsafe { call.get().read_volatile() });
        let written = calls.into_iter().filter(|call| *call != Call::default());
        written.max_by_key(|call| call.sequence)
    }

    /// A rank in a message: `rank 2 (process 411, last seen in all_reduce, sequence 11)`.
    fn describe(&self, peer: usize) -> String {
        let process = self.peers[peer].as_ref().map_or(0, Peer::pid);
        let Some(call) = self.last_call(peer) else {
            return format!("rank {peer} (process {process}, not seen in any collective yet)");
        };
        let name = Kind::from_code(call.kind).map_or("?", Kind::name);
        format!(
            "rank {peer} (process {process}, last seen in {name}, sequence {})",
            call.sequence
        )
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let control = self.segment.control(self.rank);
        // A forked child drops a copy of its parent's.
        if control.pid.load(Ordering::Relaxed) == std::process::id() {
            control.left.store(1, Ordering::Release);
        }
    }
}
