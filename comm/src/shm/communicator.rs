//! One rank's end of a group over shared memory: waiting, failing, and what is known of the others.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::channels::Incoming;
use super::collectives::Progress;
use super::flag::{reached, Flag};
use super::peers::Peer;
use super::segment::Segment;
use crate::communicator::{Communicator, Stream};
use crate::{Collective, DType, Error, ErrorKind, Kind, Result};

/// How long a rank sleeps before it looks whether the others still live.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// Turns of the loop that waits before the kernel is asked to: about 20 µs with a core for every rank. With
/// fewer cores than ranks, who waits takes the time of who is waited for.
const SPIN_ALONE: u32 = 1500;
const SPIN_CROWDED: u32 = 20;

/// One rank's end of a group of processes of one host.
pub struct Shm {
    pub(super) segment: Segment,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) group: String,
    /// By rank; none for this one.
    pub(super) peers: Vec<Option<Peer>>,
    spin: u32,
    /// Collectives go one after the other.
    pub(super) progress: Mutex<Progress>,
    /// Messages to each rank go one after the other.
    pub(super) outgoing: Vec<Mutex<()>>,
    pub(super) incoming: Vec<Mutex<Incoming>>,
}

impl Shm {
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
            progress: Mutex::default(),
            outgoing: (0..size).map(|_| Mutex::new(())).collect(),
            incoming: (0..size).map(|_| Mutex::default()).collect(),
        }
    }

    /// The other ranks, beginning with the next one, so that not all read from the same.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |distance| (rank + distance) % size)
    }

    /// Waits until a flag that `peer` advances has reached `target`.
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
            if slept && self.is_gone(peer) {
                // It may have published just before it ended.
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

    pub(super) fn lost(&self, peer: usize) -> Error {
        Error::new(
            ErrorKind::PeerLost,
            format!("the process of {} has ended", self.describe(peer)),
        )
        .due_to(peer)
    }

    /// `rank 2 (process 411, last seen in all_reduce, sequence 11)`.
    fn describe(&self, peer: usize) -> String {
        let control = self.segment.control(peer);
        let process = self.peers[peer].as_ref().map_or(0, Peer::pid);
        let step = control.step.get();
        if step == 0 {
            return format!("rank {peer} (process {process}, not seen in any collective yet)");
        }
        // SAFETY: for a message only: the rank may be writing its next call.
        let call = unsafe { control.call[step as usize % 2].get().read_volatile() };
        let name = Kind::from_code(call.kind).map_or("?", Kind::name);
        format!(
            "rank {peer} (process {process}, last seen in {name}, sequence {})",
            call.sequence
        )
    }

    /// Puts the call and the group before an error, and lets the other ranks know of it.
    fn fail(&self, error: Error, call: &Collective<'_>) -> Error {
        let kind = error.kind();
        let error = error.during(&format!(
            "{call} in group {:?} on rank {}",
            self.group, self.rank
        ));
        if !matches!(
            kind,
            ErrorKind::InvalidArgument | ErrorKind::Unsupported | ErrorKind::Aborted
        ) {
            self.segment.abort(self.rank, &error.to_string());
        }
        error
    }
}

impl Communicator for Shm {
    fn engine(&self) -> &'static str {
        "shm"
    }

    fn library(&self) -> Option<String> {
        None
    }

    fn on_streams(&self) -> bool {
        false
    }

    unsafe fn run(&self, call: &Collective<'_>, _stream: Stream) -> Result<()> {
        call.check(self.rank, self.size)?;
        let deadline = Instant::now()
            .checked_add(call.timeout)
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(u64::from(u32::MAX)));
        let outcome = self.check_abort().and_then(|()| {
            // SAFETY: the caller's promise about the buffers.
            unsafe {
                match call.kind {
                    Kind::Send => self.send(call, deadline),
                    Kind::Recv => self.receive(call, deadline).map(drop),
                    _ => self.collective(call, deadline),
                }
            }
        });
        outcome.map_err(|error| self.fail(error, call))
    }

    unsafe fn receive_any(&self, call: &Collective<'_>) -> Result<usize> {
        call.check(self.rank, self.size)?;
        let deadline = Instant::now() + call.timeout;
        // SAFETY: the caller's promise about the buffers.
        let outcome = self
            .check_abort()
            .and_then(|()| unsafe { self.receive(call, deadline) });
        outcome.map_err(|error| self.fail(error, call))
    }

    fn group_start(&self) -> Result<()> {
        Ok(())
    }

    fn group_end(&self) -> Result<()> {
        Ok(())
    }

    fn abort(&self, reason: &str) {
        self.segment.abort(self.rank, reason);
    }

    fn async_error(&self) -> Result<()> {
        self.check_abort()
    }

    fn state(&self) -> serde_json::Value {
        let ranks: Vec<_> = (0..self.size)
            .map(|rank| {
                let control = self.segment.control(rank);
                let step = control.step.get();
                // SAFETY: for a report only: the rank may be writing its next call.
                let call = unsafe { control.call[step as usize % 2].get().read_volatile() };
                serde_json::json!({
                    "rank": rank,
                    "process": self.peers[rank].as_ref().map_or_else(|| std::process::id() as i32, Peer::pid),
                    "alive": !self.is_gone(rank),
                    "step": step,
                    "collective": Kind::from_code(call.kind).filter(|_| step != 0).map(Kind::name),
                    "sequence": call.sequence,
                    "count": call.count,
                    "dtype": DType::from_code(call.dtype).filter(|_| step != 0).map(DType::name),
                })
            })
            .collect();
        let aborted = self.segment.aborted();
        serde_json::json!({
            "engine": "shm",
            "group": self.group,
            "rank": self.rank,
            "ranks": ranks,
            "aborted": aborted.map(|(by, reason)| serde_json::json!({"by": by, "reason": reason})),
        })
    }
}
