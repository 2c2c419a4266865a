//! The steps that collectives consist of: writing this rank's window, publishing, waiting for the windows of others.

use std::time::Instant;

use super::flag::reached;
use super::member::Member;
use super::segment::{Call, WINDOWS};
use crate::{Collective, DType, Error, ErrorKind, Kind, ReduceOp, Result};

/// The alignment of a window's parts.
pub(super) const ALIGN: usize = 64;

/// The steps of one collective.
pub(super) struct Steps<'a> {
    pub(super) member: &'a Member,
    pub(super) call: &'a Collective<'a>,
    deadline: Instant,
    /// The number of the current step.
    now: u32,
    /// Whether no step is done yet.
    pub(super) first: bool,
    /// The most bytes this rank sends to one rank, for all-to-all.
    pub(super) longest: usize,
    /// The factor of each rank, for [`ReduceOp::PremulSum`].
    pub(super) factors: Vec<f64>,
    /// The call that is still to be compared with the calls of other ranks.
    open: Described,
}

/// A call of this rank that has not been compared with every rank's. A rank that only gives, such as the root of a
/// broadcast, waits for no other rank. A rank that made another call is noticed later: when this rank has finished, or
/// when it waits for that rank.
#[derive(Default)]
struct Described {
    /// The step in which this rank published the description of the call.
    step: u32,
    call: Call,
    /// For each rank, whether its call has not been compared yet.
    unseen: Vec<bool>,
}

/// The progress of a rank over all its calls.
#[derive(Default)]
pub(super) struct Progress {
    /// The last step of this rank.
    step: u32,
    open: Described,
}

/// Copies bytes between memory of this process and a window.
///
/// # Safety
/// Both are valid for `bytes` and do not overlap, unless they are the same.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes != 0 && !std::ptr::eq(from, to) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

impl<'a> Steps<'a> {
    /// The first steps of a call, which go on behind `progress`.
    #[inline]
    pub(super) fn new(
        member: &'a Member,
        call: &'a Collective<'a>,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Self {
        Self {
            member,
            call,
            deadline,
            now: progress.step,
            first: true,
            longest: 0,
            factors: vec![],
            open: std::mem::take(&mut progress.open),
        }
    }

    /// Ends the call, and notes its last step in `progress`.
    #[inline]
    pub(super) fn end(mut self, progress: &mut Progress) -> Result<()> {
        self.compare_those_who_came()?;
        progress.step = self.now;
        progress.open = self.open;
        Ok(())
    }

    #[inline]
    pub(super) fn mine(&self) -> usize {
        self.member.rank
    }

    /// Begins a step. Returns this rank's window, which no rank reads any more.
    #[inline]
    pub(super) fn begin(&mut self) -> Result<*mut u8> {
        self.now = self.now.wrapping_add(1);
        let member = self.member;
        let before = self.now.wrapping_sub(WINDOWS as u32 - 1);
        for other in member.others() {
            member.wait(
                &member.segment.control(other).step,
                before,
                other,
                self.deadline,
            )?;
        }
        // All ranks have published the step before this one, and none can be beyond the next.
        for other in member.others() {
            self.compare(other)?;
        }
        if self.first {
            let slot = &member.segment.control(self.mine()).call[self.now as usize % WINDOWS];
            let call = self.describe();
            // SAFETY: only this rank writes, and the others have read what was here two steps ago.
            unsafe { *slot.get() = call };
            self.open.step = self.now;
            self.open.call = call;
            self.open.unseen.clear();
            self.open.unseen.resize(member.size, true);
        }
        Ok(member.segment.window(self.mine(), self.now))
    }

    #[inline]
    fn describe(&self) -> Call {
        let call = self.call;
        let count = if call.kind == Kind::AllToAll {
            0
        } else {
            call.count as u64
        };
        Call {
            kind: call.kind as u32,
            dtype: if call.kind == Kind::Barrier {
                0
            } else {
                call.dtype as u32
            },
            reduce: if call.kind.reduces() {
                call.reduce as u32
            } else {
                0
            },
            root: call.root.map_or(u32::MAX, |root| root as u32),
            count,
            sequence: call.sequence,
            factor: call.factor.to_bits(),
            longest: self.longest as u64,
        }
    }

    /// Publishes the step: the window is written, and earlier steps are read.
    #[inline]
    pub(super) fn publish(&self) {
        self.member
            .segment
            .control(self.mine())
            .step
            .publish(self.now);
    }

    /// Waits for the contribution of `other` to this step. Returns its window.
    #[inline]
    pub(super) fn arrived(&mut self, other: usize) -> Result<*const u8> {
        let control = self.member.segment.control(other);
        self.member
            .wait(&control.step, self.now, other, self.deadline)?;
        self.compare(other)?;
        Ok(self.member.segment.window(other, self.now))
    }

    #[inline]
    fn call_of(&self, other: usize) -> Call {
        let slot = &self.member.segment.control(other).call[self.now as usize % WINDOWS];
        // SAFETY: `other` has published this step, and does not write here before this rank has gone on.
        unsafe { *slot.get() }
    }

    /// Compares the call with those of the ranks that have published its step already. Of two ranks that wait for no other,
    /// one sees the other's call: publishing a step and reading the others' steps are sequentially consistent.
    #[inline]
    fn compare_those_who_came(&mut self) -> Result<()> {
        let (member, step) = (self.member, self.open.step);
        for other in member.others() {
            if reached(member.segment.control(other).step.get(), step) {
                self.compare(other)?;
            }
        }
        Ok(())
    }

    /// Fails when `other` made another call than this rank. `other` has published the step of the description.
    #[inline]
    fn compare(&mut self, other: usize) -> Result<()> {
        let unseen = self.open.unseen.get_mut(other);
        if !unseen.is_some_and(std::mem::take) {
            return Ok(());
        }
        let slot = &self.member.segment.control(other).call[self.open.step as usize % WINDOWS];
        // SAFETY: `other` has published that step, and describes no call two steps later before this rank has gone on.
        let (here, there) = (self.open.call, unsafe { *slot.get() });
        let same = |call: Call| Call {
            factor: 0,
            longest: 0,
            sequence: 0,
            ..call
        };
        if same(here) == same(there) {
            return Ok(());
        }
        let before = if here == self.describe() {
            String::new()
        } else {
            format!(
                " of this rank's {} (sequence {})",
                Kind::from_code(here.kind).map_or("?", Kind::name),
                here.sequence
            )
        };
        let kind = Kind::from_code(there.kind).map_or("?", Kind::name);
        let dtype = DType::from_code(there.dtype).map_or("?", DType::name);
        let reduced = match Kind::from_code(there.kind) {
            Some(kind) if kind.reduces() => {
                format!(
                    ", {}",
                    ReduceOp::from_code(there.reduce).map_or("?", ReduceOp::name)
                )
            }
            _ => String::new(),
        };
        let root = if there.root == u32::MAX {
            String::new()
        } else {
            format!(", root {}", there.root)
        };
        Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "rank {other} called {kind} of {} x {dtype}{reduced}{root} (sequence {}) instead{before}: all ranks must call \
                 the same collectives in the same order, with the same types and sizes",
                there.count, there.sequence
            ),
        )
        .due_to(other))
    }

    /// Waits for the contributions of all ranks; in the first step, reads their factors.
    #[inline]
    pub(super) fn all_arrived(&mut self) -> Result<()> {
        for other in self.member.others() {
            self.arrived(other)?;
        }
        if self.first && self.call.kind.reduces() && self.call.reduce == ReduceOp::PremulSum {
            self.factors = (0..self.member.size)
                .map(|rank| f64::from_bits(self.call_of(rank).factor))
                .collect();
        }
        self.first = false;
        Ok(())
    }

    /// The addresses of all ranks' contributions, at `offset` of their windows; `own` is this rank's.
    #[inline]
    pub(super) fn inputs(&self, own: *const u8, offset: usize) -> Vec<*const u8> {
        (0..self.member.size)
            .map(|rank| {
                if rank == self.mine() {
                    own
                } else {
                    // The offset is within a window.
                    self.member
                        .segment
                        .window(rank, self.now)
                        .wrapping_add(offset)
                        .cast_const()
                }
            })
            .collect()
    }

    /// Bytes of a window's part, of which each rank has one.
    #[inline]
    pub(super) fn part(&self) -> usize {
        self.member.segment.window_bytes() / self.member.size / ALIGN * ALIGN
    }

    /// The `longest` of `other`, which it publishes in the first step only; 0 in later steps.
    #[inline]
    pub(super) fn longest_of(&self, other: usize) -> usize {
        if self.first {
            self.call_of(other).longest as usize
        } else {
            0
        }
    }
}
