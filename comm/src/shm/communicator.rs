//! The communicator of the engine `shm`.

use std::time::{Duration, Instant};

use super::channels::Channels;
use super::collectives::Collectives;
use super::member::Member;
use super::peers::Peer;
use crate::communicator::{Communicator, Other, Stream};
use crate::{Collective, DType, Error, ErrorKind, Kind, ReduceOp, Result};

/// One rank's end of a group of processes of one host.
pub struct Shm {
    pub(super) member: Member,
    collectives: Collectives,
    channels: Channels,
}

impl Shm {
    pub(super) fn new(member: Member) -> Self {
        Self {
            collectives: Collectives::default(),
            channels: Channels::new(member.size),
            member,
        }
    }

    /// Adds the call and the group to an error, and aborts the group when the other ranks must stop too.
    fn fail(&self, error: Error, call: &Collective<'_>) -> Error {
        let kind = error.kind();
        let error = error.during(&format!(
            "{call} in group {:?} on rank {}",
            self.member.group, self.member.rank
        ));
        if !matches!(
            kind,
            ErrorKind::InvalidArgument | ErrorKind::Unsupported | ErrorKind::Aborted
        ) {
            self.member
                .segment
                .abort(self.member.rank, &error.to_string());
        }
        error
    }
}

/// The end of the call's time-out. A time-out that the clock cannot represent becomes 136 years.
fn deadline(call: &Collective<'_>) -> Instant {
    let now = Instant::now();
    now.checked_add(call.timeout)
        .unwrap_or_else(|| now + Duration::from_secs(u64::from(u32::MAX)))
}

impl Communicator for Shm {
    fn rank(&self) -> usize {
        self.member.rank
    }

    fn size(&self) -> usize {
        self.member.size
    }

    fn engine(&self) -> &'static str {
        "shm"
    }

    fn reduces(&self, _op: ReduceOp, _dtype: DType) -> bool {
        true
    }

    fn library(&self) -> Option<String> {
        None
    }

    fn on_streams(&self) -> bool {
        false
    }

    unsafe fn issue(&self, call: &Collective<'_>, _stream: Stream) -> Result<()> {
        call.check(self.member.rank, self.member.size)?;
        let deadline = deadline(call);
        let outcome = self.member.check_abort().and_then(|()| {
            // SAFETY: the caller's promise about the buffers.
            unsafe {
                match call.kind {
                    Kind::Send => self.channels.send(&self.member, call, deadline),
                    Kind::Recv => self
                        .channels
                        .receive(&self.member, call, deadline)
                        .map(drop),
                    _ => self.collectives.perform(&self.member, call, deadline),
                }
            }
        });
        outcome.map_err(|error| self.fail(error, call))
    }

    unsafe fn receive_any(&self, call: &Collective<'_>) -> Result<usize> {
        call.check(self.member.rank, self.member.size)?;
        let deadline = deadline(call);
        // SAFETY: the caller's promise about the buffers.
        let outcome = self
            .member
            .check_abort()
            .and_then(|()| unsafe { self.channels.receive(&self.member, call, deadline) });
        outcome.map_err(|error| self.fail(error, call))
    }

    fn group_start(&self) -> Result<()> {
        Ok(())
    }

    fn group_end(&self) -> Result<()> {
        Ok(())
    }

    fn abort(&self, reason: &str) {
        self.member.segment.abort(self.member.rank, reason);
    }

    fn async_error(&self) -> Result<()> {
        self.member.check_abort()
    }

    fn note_queued(&self, kind: Kind, sequence: u64) {
        self.member.note_queued(kind, sequence);
    }

    fn others(&self) -> Vec<Other> {
        self.member.known()
    }

    fn state(&self) -> serde_json::Value {
        let ranks: Vec<_> = (0..self.member.size)
            .map(|rank| {
                let step = self.member.segment.control(rank).step.get();
                let last = self.member.last_call(rank);
                let call = last.unwrap_or_default();
                serde_json::json!({
                    "rank": rank,
                    "process": self.member.peers[rank].as_ref().map_or_else(|| std::process::id() as i32, Peer::pid),
                    "alive": !self.member.is_gone(rank),
                    "step": step,
                    "collective": last.and_then(|call| Kind::from_code(call.kind)).map(Kind::name),
                    "sequence": call.sequence,
                    "count": call.count,
                    "dtype": last.and_then(|call| DType::from_code(call.dtype)).map(DType::name),
                })
            })
            .collect();
        let aborted = self.member.segment.aborted();
        serde_json::json!({
            "engine": "shm",
            "group": self.member.group,
            "rank": self.member.rank,
            "ranks": ranks,
            "aborted": aborted.map(|(by, reason)| serde_json::json!({"by": by, "reason": reason})),
        })
    }
}
