//! The collectives, as sequences of steps.

use std::time::Instant;

use parking_lot::Mutex;

use super::member::Member;
use super::steps::{ALIGN, Progress, Steps, copy};
use crate::reduce::reduce;
use crate::{Collective, Error, ErrorKind, Kind, Result};

/// The most bytes that a rank reads in an all-reduce of one step, in which every rank reduces all elements.
const ONE_STEP_BYTES: usize = 96 << 10;

/// The smallest window that has a part for each of `size` ranks and the table of an all-to-all.
pub(super) fn least_window(size: usize) -> usize {
    (table(size) + size * ALIGN).next_multiple_of(4096)
}

/// The size of the table at the beginning of an all-to-all's window, which has the number of bytes for each rank.
fn table(size: usize) -> usize {
    (size * size_of::<u64>()).next_multiple_of(ALIGN)
}

/// The collectives of one rank, which go one after the other.
#[derive(Default)]
pub(super) struct Collectives(Mutex<Progress>);

impl Collectives {
    /// Performs a collective.
    ///
    /// # Safety
    /// The buffers of `call` are valid for its counts.
    #[inline]
    pub(super) unsafe fn perform(
        &self,
        member: &Member,
        call: &Collective<'_>,
        deadline: Instant,
    ) -> Result<()> {
        let mut progress = self.0.lock();
        let mut steps = Steps::new(member, call, deadline, &mut progress);
        // SAFETY: the caller's promise.
        unsafe {
            match call.kind {
                Kind::AllReduce | Kind::Reduce => steps.all_reduce()?,
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
        steps.end(&mut progress)
    }
}

impl Steps<'_> {
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
        let wanted = call.kind == Kind::AllReduce || call.root == Some(self.mine());
        let total = call.bytes();
        let in_one_step = total * (self.member.size - 1) <= ONE_STEP_BYTES
            && total <= self.member.segment.window_bytes();
        if in_one_step {
            // SAFETY: the caller's promise; the data fits into the window.
            return unsafe { self.all_reduce_whole(wanted) };
        }
        let part = self.part();
        let mut start = 0;
        while start < total {
            let chunk = (part * self.member.size).min(total - start);
            // SAFETY: the caller's promise; the chunk is within the buffers.
            unsafe { self.all_reduce_chunk(wanted, start, chunk, part)? };
            start += chunk;
        }
        Ok(())
    }

    /// Every rank reduces all elements.
    ///
    /// # Safety
    /// As [`Self::all_reduce`]; the data fits into a window.
    unsafe fn all_reduce_whole(&mut self, wanted: bool) -> Result<()> {
        let call = self.call;
        let window = self.begin()?;
        // SAFETY: it fits into the window; the call's buffers hold all bytes.
        unsafe { copy(call.send[0], window, call.bytes()) };
        self.publish();
        self.all_arrived()?;
        if wanted {
            let inputs = self.inputs(call.send[0], 0);
            // SAFETY: every input holds `count` elements; windows are aligned, and torch's memory is.
            unsafe { self.reduce(&inputs, call.count, call.recv[0], None) };
        }
        Ok(())
    }

    /// Every rank reduces one part of the `chunk` bytes from `start` on, then reads the parts that the others reduced.
    ///
    /// # Safety
    /// As [`Self::all_reduce`]; the chunk is within the buffers, and has no more than `part` bytes for each rank.
    unsafe fn all_reduce_chunk(
        &mut self,
        wanted: bool,
        start: usize,
        chunk: usize,
        part: usize,
    ) -> Result<()> {
        let call = self.call;
        let (send, recv) = (call.send[0], call.recv[0]);
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
                self.reduce(&inputs, count, recv.add(start + from), Some(window));
            } else {
                self.reduce(&inputs, count, window, None);
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
        Ok(())
    }

    /// Reduces by the call's operation.
    ///
    /// # Safety
    /// As [`reduce`].
    unsafe fn reduce(
        &self,
        inputs: &[*const u8],
        count: usize,
        out: *mut u8,
        mirror: Option<*mut u8>,
    ) {
        let call = self.call;
        // SAFETY: the caller's promise.
        unsafe {
            reduce(
                call.reduce,
                call.dtype,
                &self.factors,
                inputs,
                count,
                out,
                mirror,
            )
        };
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
            unsafe { self.reduce(&inputs, count, out, None) };
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
}
