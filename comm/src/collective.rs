//! One call of a collective or a transfer between two ranks.

use std::fmt;
use std::time::Duration;

use crate::{DType, Error, ErrorKind, ReduceOp, Result};

/// The kinds of calls. The discriminants are those of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Every rank gets the reduction of all.
    AllReduce = 0,
    /// Every rank gets the root's data.
    Broadcast = 1,
    /// The root gets the reduction of all.
    Reduce = 2,
    /// Every rank gets the data of all ranks.
    AllGather = 3,
    /// The root gets the data of all ranks.
    Gather = 4,
    /// Every rank gets its part of the root's data.
    Scatter = 5,
    /// Every rank gets its part of the reduction of all.
    ReduceScatter = 6,
    /// Every rank gets its part of the data of each rank.
    AllToAll = 7,
    /// No rank goes on before all have made the call.
    Barrier = 8,
    /// A transfer to one rank.
    Send = 9,
    /// A transfer from one rank.
    Recv = 10,
}

impl Kind {
    /// Every kind, by discriminant.
    pub const ALL: [Self; 11] = [
        Self::AllReduce,
        Self::Broadcast,
        Self::Reduce,
        Self::AllGather,
        Self::Gather,
        Self::Scatter,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Barrier,
        Self::Send,
        Self::Recv,
    ];

    /// The kind with this code in the C table.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// `torch.distributed`'s name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllGather => "all_gather",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Barrier => "barrier",
            Self::Send => "send",
            Self::Recv => "recv",
        }
    }

    /// Whether the call reduces values.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce | Self::ReduceScatter)
    }

    /// Whether one rank, the root, has another part than the others.
    #[must_use]
    pub const fn rooted(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter
        )
    }
}

/// A call with all its arguments, checked against the group.
///
/// There is one pointer for each rank where a collective has one part for each rank. The buffers are valid for
/// their counts until the work is done: for `shm` on return, for other engines when the stream has run the call.
#[derive(Debug, Clone)]
pub struct Collective<'a> {
    /// The kind of the call.
    pub kind: Kind,
    /// The elements' type.
    pub dtype: DType,
    /// The reduction, of kinds that reduce.
    pub reduce: ReduceOp,
    /// The root, or the other rank of a transfer; `None` to receive from any rank.
    pub root: Option<usize>,
    /// The tag of a transfer: a receive takes the next message with the same tag.
    pub tag: i32,
    /// Elements of each part. Not used by [`Kind::AllToAll`].
    pub count: usize,
    /// The factor of [`ReduceOp::PremulSum`].
    pub factor: f64,
    /// The number of this call in its group, for messages.
    pub sequence: u64,
    /// The longest time to wait for other ranks.
    pub timeout: Duration,
    /// The addresses of data to send: one, or for reduce-scatter, scatter (at the root) and all-to-all one for each rank.
    pub send: &'a [*const u8],
    /// The addresses of received data: one, or for all-gather, gather (at the root) and all-to-all one for each rank.
    pub recv: &'a [*mut u8],
    /// Elements to each rank, for all-to-all.
    pub send_counts: &'a [usize],
    /// Elements from each rank, for all-to-all.
    pub recv_counts: &'a [usize],
}

impl Collective<'_> {
    /// Bytes of one part.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.count * self.dtype.size()
    }

    /// Fails for a call of `rank` that no engine can serve in a group of `size`.
    pub fn check(&self, rank: usize, size: usize) -> Result<()> {
        let bad = |why: String| {
            Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{self}: {why}"),
            ))
        };
        if let Some(root) = self.root {
            if root >= size {
                return bad(format!("rank {root} is not in a group of {size}"));
            }
        } else if self.kind.rooted() || self.kind == Kind::Send {
            return bad("the number of a rank is missing".into());
        }
        if self.kind.reduces() {
            self.reduce.check(self.dtype)?;
        }
        let at_root = self.root == Some(rank);
        let (sends, receives) = match self.kind {
            Kind::Barrier => (0, 0),
            Kind::AllReduce | Kind::Broadcast | Kind::Reduce => (1, 1),
            Kind::Send => (1, 0),
            Kind::Recv => (0, 1),
            Kind::AllGather => (1, size),
            Kind::Gather => (1, if at_root { size } else { 0 }),
            Kind::Scatter => (if at_root { size } else { 0 }, 1),
            Kind::ReduceScatter => (size, 1),
            Kind::AllToAll => (size, size),
        };
        if self.send.len() != sends || self.recv.len() != receives {
            return bad(format!(
                "rank {rank} of {size} gives {} buffers to send and {} to receive, {sends} and {receives} are needed",
                self.send.len(),
                self.recv.len()
            ));
        }
        let null = |count: usize, address: *const u8| count != 0 && address.is_null();
        let any_null = if self.kind == Kind::AllToAll {
            if self.send_counts.len() != size || self.recv_counts.len() != size {
                return bad(format!("{size} counts each way are needed"));
            }
            let out = self.send.iter().zip(self.send_counts);
            let back = self.recv.iter().zip(self.recv_counts);
            out.clone().any(|(&address, &count)| null(count, address))
                || back.clone().any(|(&address, &count)| null(count, address))
        } else {
            self.send.iter().any(|&address| null(self.count, address))
                || self.recv.iter().any(|&address| null(self.count, address))
        };
        if any_null {
            return bad("a buffer is NULL".into());
        }
        Ok(())
    }
}

/// The call in a message: `all_reduce (sequence 12, sum of 1024 x float32, 4.0 KiB)`.
impl fmt::Display for Collective<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (sequence {}", self.kind.name(), self.sequence)?;
        match self.kind {
            Kind::Barrier => {}
            Kind::AllToAll => {
                let out: usize = self.send_counts.iter().sum();
                let back: usize = self.recv_counts.iter().sum();
                write!(f, ", {out} x {} out, {back} in", self.dtype.name())?;
            }
            _ => {
                f.write_str(", ")?;
                if self.kind.reduces() {
                    write!(f, "{} of ", self.reduce.name())?;
                }
                write!(f, "{} x {}, ", self.count, self.dtype.name())?;
                f.write_str(&size_of_bytes(self.bytes()))?;
            }
        }
        match (self.kind, self.root) {
            (Kind::Send, Some(peer)) => write!(f, ", to rank {peer}, tag {}", self.tag)?,
            (Kind::Recv, Some(peer)) => write!(f, ", from rank {peer}, tag {}", self.tag)?,
            (Kind::Recv, None) => write!(f, ", from any rank, tag {}", self.tag)?,
            (kind, Some(root)) if kind.rooted() => write!(f, ", root {root}")?,
            _ => {}
        }
        f.write_str(")")
    }
}

/// A number of bytes for people: `512 bytes`, `4.0 KiB`, `64.0 MiB`.
pub(crate) fn size_of_bytes(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}
