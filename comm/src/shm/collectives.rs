//! The collectives, as sequences of steps.

use std::time::Instant;

use parking_lot::Mutex;

use super::flag::reached;
use super::member::Member;
use super::segment::{Call, WINDOWS};
use crate::reduce::reduce;
use crate::{Collective, DType, Error, ErrorKind, Kind, ReduceOp, Result};

/// The most bytes that a rank reads in an all-reduce of one step, in which every rank reduces all elements.
const ONE_STEP_BYTES: usize = 96 << 10;

/// The alignment of a window's parts.
const ALIGN: usize = 64;

/// The smallest window that has a part for each of `size` ranks and the table of an all-to-all.
pub(super) fn least_window(size: usize) -> usize {
    (table(size) + size * ALIGN).next_multiple_of(4096)
}

/// The size of the table at the beginning of an all-to-all's window, which has the number of bytes for each rank.
fn table(size: usize) -> usize {
    (size * size_of::<u64>()).next_multiple_of(ALIGN)
}

/// The steps of one collective.
struct Steps<'a> {
    member: &'a Member,
    call: &'a Collective<'a>,
    deadline: Instant,
    /// The number of the current step.
    now: u32,
    first: bool,
    /// The most bytes this rank sends to one rank, for all-to-all.
    longest: usize,
    /// The factor of each rank, for [`ReduceOp::PremulSum`].
    factors: Vec<f64>,
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
struct Progress {
    /// The last step of this rank.
    step: u32,
    open: Described,
}

/// The collectives of one rank, which go one after the other.
#[derive(Default)]
pub(super) struct Collectives(Mutex<Progress>);

impl Collectives {
    /// Runs a collective.
    ///
    /// # Safety
    /// The buffers of `call` are valid for its counts.
    pub(super) unsafe fn run(
        &self,
        member: &Member,
        call: &Collective<'_>,
        deadline: Instant,
    ) -> Result<()> {
        let mut progress = self.0.lock();
        let mut steps = Steps {
            member,
            call,
            deadline,
            now: progress.step,
            first: true,
            longest: 0,
            factors: vec![],
            open: std::mem::take(&mut progress.open),
        };
        // SAFETY: the caller's promise.
        unsafe {
            match call.kind {
                Kind::AllReduce => steps.all_reduce()?,
                Kind::Reduce => steps.all_reduce()?,
                Kind::Broadcast => steps.broadcast()?,
                Kind::AllGather | Kind::Gather => steps.gather()?,
                Kind::Scatter => steps.scatter()?,
                Kind::ReduceScatter => steps.reduce_scatter()?,
                Kind::AllToAll => steps.all_to_all()?,
                Kind::Barrier => steps.barrier()?,
                Kind::Send | Kind::Recv => {
                    return Err(Error::new(
                        ErrorKind::Internal,
                        "a transfer is not a collective",
                    ));
                }
            }
        }
        steps.compare_those_who_came()?;
        progress.step = steps.now;
        progress.open = steps.open;
        Ok(())
    }
}

/// Copies bytes between memory of this process and a window.
///
/// # Safety
/// Both are valid for `bytes` and do not overlap, unless they are the same.
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes != 0 && !std::ptr::eq(from, to) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

impl Steps<'_> {
    fn mine(&self) -> usize {
        self.member.rank
    }

    /// Begins a step. Returns this rank's window, which no rank reads any more.
    fn begin(&mut self) -> Result<*mut u8> {
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
    fn publish(&self) {
        self.member
            .segment
            .control(self.mine())
            .step
            .publish(self.now);
    }

    /// Waits for the contribution of `other` to this step. Returns its window.
    fn arrived(&mut self, other: usize) -> Result<*const u8> {
        let control = self.member.segment.control(other);
        self.member
            .wait(&control.step, self.now, other, self.deadline)?;
        self.compare(other)?;
        Ok(self.member.segment.window(other, self.now))
    }

    fn call_of(&self, other: usize) -> Call {
        let slot = &self.member.segment.control(other).call[self.now as usize % WINDOWS];
        // SAFETY: `other` has published this step, and does not write here before this rank has gone on.
        unsafe { *slot.get() }
    }

    /// Compares the call with those of the ranks that have published its step already. Of two ranks that wait for no other,
    /// one sees the other's call: publishing a step and reading the others' steps are sequentially consistent.
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
    fn all_arrived(&mut self) -> Result<()> {
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
    fn inputs(&self, own: *const u8, offset: usize) -> Vec<*const u8> {
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
    fn part(&self) -> usize {
        self.member.segment.window_bytes() / self.member.size / ALIGN * ALIGN
    }

    fn barrier(&mut self) -> Result<()> {
        self.begin()?;
        self.publish();
        self.all_arrived()
    }

    /// All-reduce, and reduce, where only the root reads the results.
    ///
    /// # Safety
    /// The buffers of the call are valid for its counts.
    unsafe fn all_reduce(&mut self) -> Result<()> {
        let call = self.call;
        let (send, recv) = (call.send[0], call.recv[0]);
        let wanted = call.kind == Kind::AllReduce || call.root == Some(self.mine());
        let total = call.bytes();
        if total * (self.member.size - 1) <= ONE_STEP_BYTES
            && total <= self.member.segment.window_bytes()
        {
            let window = self.begin()?;
            // SAFETY: it fits into the window; the call's buffers hold `total` bytes.
            unsafe { copy(send, window, total) };
            self.publish();
            self.all_arrived()?;
            if wanted {
                let inputs = self.inputs(send, 0);
                // SAFETY: every input holds `count` elements; windows are aligned, and torch's memory is.
                unsafe {
                    reduce(
                        call.reduce,
                        call.dtype,
                        &self.factors,
                        &inputs,
                        call.count,
                        recv,
                        None,
                    )
                };
            }
            return Ok(());
        }

        // Every rank reduces one part of a chunk, then reads the parts that the others reduced.
        let part = self.part();
        let mut start = 0;
        while start < total {
            let chunk = (part * self.member.size).min(total - start);
            let range = |rank: usize| {
                let from = (rank * part).min(chunk);
                (from, ((rank + 1) * part).min(chunk) - from)
            };
            let window = self.begin()?;
            for other in self.member.others() {
                let (from, bytes) = range(other);
                // SAFETY: within the chunk, which is within the buffer and no longer than the window.
                unsafe { copy(send.add(start + from), window.add(from), bytes) };
            }
            self.publish();
            self.all_arrived()?;

            let (from, bytes) = range(self.mine());
            // SAFETY: within the buffer.
            let inputs = self.inputs(unsafe { send.add(start + from) }, from);
            let window = self.begin()?;
            let count = bytes / call.dtype.size();
            // SAFETY: as above; the part fits into the window.
            unsafe {
                if wanted {
                    let out = recv.add(start + from);
                    reduce(
                        call.reduce,
                        call.dtype,
                        &self.factors,
                        &inputs,
                        count,
                        out,
                        Some(window),
                    );
                } else {
                    reduce(
                        call.reduce,
                        call.dtype,
                        &self.factors,
                        &inputs,
                        count,
                        window,
                        None,
                    );
                }
            }
            self.publish();
            for other in self.member.others() {
                let (from, bytes) = range(other);
                let theirs = self.arrived(other)?;
                if wanted {
                    // SAFETY: as above.
                    unsafe { copy(theirs, recv.add(start + from), bytes) };
                }
            }
            start += chunk;
        }
        Ok(())
    }

    /// # Safety
    /// The buffers of the call are valid for its counts.
    unsafe fn broadcast(&mut self) -> Result<()> {
        let call = self.call;
        let root = call.root.unwrap_or_default();
        let (total, window) = (call.bytes(), self.member.segment.window_bytes());
        let mut start = 0;
        // A call without elements takes a step too, in which the ranks compare their calls.
        loop {
            let bytes = window.min(total - start);
            let own = self.begin()?;
            if self.mine() == root {
                // SAFETY: within the buffer and the window.
                unsafe { copy(call.send[0].wrapping_add(start), own, bytes) };
                self.publish();
            } else {
                self.publish();
                let theirs = self.arrived(root)?;
                // SAFETY: as above.
                unsafe { copy(theirs, call.recv[0].wrapping_add(start), bytes) };
            }
            self.first = false;
            start += bytes;
            if start >= total {
                break;
            }
        }
        if self.mine() == root {
            // SAFETY: both hold the call's bytes.
            unsafe { copy(call.send[0], call.recv[0], total) };
        }
        Ok(())
    }

    /// All-gather, and gather, where only the root reads.
    ///
    /// # Safety
    /// The buffers of the call are valid for its counts.
    unsafe fn gather(&mut self) -> Result<()> {
        let call = self.call;
        let reads = call.kind == Kind::AllGather || call.root == Some(self.mine());
        let (total, window) = (call.bytes(), self.member.segment.window_bytes());
        let mut start = 0;
        loop {
            let bytes = window.min(total - start);
            let own = self.begin()?;
            if call.kind == Kind::AllGather || !reads {
                // SAFETY: within the buffer and the window.
                unsafe { copy(call.send[0].wrapping_add(start), own, bytes) };
            }
            self.publish();
            if reads {
                for other in self.member.others() {
                    let theirs = self.arrived(other)?;
                    // SAFETY: as above.
                    unsafe { copy(theirs, call.recv[other].wrapping_add(start), bytes) };
                }
            }
            self.first = false;
            start += bytes;
            if start >= total {
                break;
            }
        }
        if reads {
            // SAFETY: both hold the call's bytes.
            unsafe { copy(call.send[0], call.recv[self.mine()], total) };
        }
        Ok(())
    }

    /// # Safety
    /// The buffers of the call are valid for its counts.
    unsafe fn scatter(&mut self) -> Result<()> {
        let call = self.call;
        let root = call.root.unwrap_or_default();
        let (total, part) = (call.bytes(), self.part());
        let mut start = 0;
        loop {
            let bytes = part.min(total - start);
            let own = self.begin()?;
            if self.mine() == root {
                for other in self.member.others() {
                    // SAFETY: within the buffer and this rank's part of the window.
                    unsafe {
                        copy(
                            call.send[other].wrapping_add(start),
                            own.add(other * part),
                            bytes,
                        )
                    };
                }
                self.publish();
            } else {
                self.publish();
                let theirs = self.arrived(root)?;
                // SAFETY: as above.
                unsafe {
                    copy(
                        theirs.add(self.mine() * part),
                        call.recv[0].wrapping_add(start),
                        bytes,
                    )
                };
            }
            self.first = false;
            start += bytes;
            if start >= total {
                break;
            }
        }
        if self.mine() == root {
            // SAFETY: both hold the call's bytes.
            unsafe { copy(call.send[root], call.recv[0], total) };
        }
        Ok(())
    }

    /// # Safety
    /// The buffers of the call are valid for its counts.
    unsafe fn reduce_scatter(&mut self) -> Result<()> {
        let call = self.call;
        let (total, part) = (call.bytes(), self.part());
        let mut start = 0;
        loop {
            let bytes = part.min(total - start);
            let own = self.begin()?;
            for other in self.member.others() {
                // SAFETY: within the buffer and that rank's part of the window.
                unsafe {
                    copy(
                        call.send[other].wrapping_add(start),
                        own.add(other * part),
                        bytes,
                    )
                };
            }
            self.publish();
            self.all_arrived()?;
            let inputs = self.inputs(
                call.send[self.mine()].wrapping_add(start),
                self.mine() * part,
            );
            let count = bytes / call.dtype.size();
            let out = call.recv[0].wrapping_add(start);
            // SAFETY: every input and the output hold `count` elements.
            unsafe {
                reduce(
                    call.reduce,
                    call.dtype,
                    &self.factors,
                    &inputs,
                    count,
                    out,
                    None,
                )
            };
            start += bytes;
            if start >= total {
                break;
            }
        }
        Ok(())
    }

    /// # Safety
    /// The buffers of the call are valid for its counts.
    unsafe fn all_to_all(&mut self) -> Result<()> {
        let call = self.call;
        let (size, element) = (self.member.size, call.dtype.size());
        let table = table(size);
        let part = (self.member.segment.window_bytes() - table) / size / ALIGN * ALIGN;
        self.longest = call
            .send_counts
            .iter()
            .max()
            .map_or(0, |count| count * element);
        let mut longest = self.longest;
        let mut start = 0;
        loop {
            let own = self.begin()?;
            for other in self.member.others() {
                let total = call.send_counts[other] * element;
                let bytes = part.min(total.saturating_sub(start));
                // SAFETY: within the buffer, the table and that rank's part of the window.
                unsafe {
                    own.cast::<u64>().add(other).write(total as u64);
                    let from = call.send[other].wrapping_add(start.min(total));
                    copy(from, own.add(table + other * part), bytes);
                }
            }
            self.publish();
            for other in self.member.others() {
                let theirs = self.arrived(other)?;
                longest = longest.max(self.longest_of(other));
                let total = call.recv_counts[other] * element;
                // SAFETY: the table is part of the window.
                let sent = unsafe { theirs.cast::<u64>().add(self.mine()).read() };
                if sent != total as u64 {
                    return Err(Error::new(
                        ErrorKind::Mismatch,
                        format!("rank {other} sends {sent} bytes where this rank expects {total}"),
                    )
                    .due_to(other));
                }
                let bytes = part.min(total.saturating_sub(start));
                // SAFETY: as above, and no more than the receiver expects.
                unsafe {
                    let to = call.recv[other].wrapping_add(start.min(total));
                    copy(theirs.add(table + self.mine() * part), to, bytes);
                }
            }
            self.first = false;
            start += part;
            if start >= longest {
                break;
            }
        }
        let mine = self.mine();
        let (out, back) = (call.send_counts[mine], call.recv_counts[mine]);
        if out != back {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("rank {mine} sends {out} elements to itself and expects {back}"),
            ));
        }
        // SAFETY: both hold that many elements.
        unsafe { copy(call.send[mine], call.recv[mine], out * element) };
        Ok(())
    }

    /// The `longest` of `other`, which it publishes in the first step only; 0 in later steps.
    fn longest_of(&self, other: usize) -> usize {
        if self.first {
            self.call_of(other).longest as usize
        } else {
            0
        }
    }
}
