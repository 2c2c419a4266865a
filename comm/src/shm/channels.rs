//! Messages between two ranks: a ring of parts for every ordered pair.
//!
//! A message's parts follow each other. A receive that finds a message with another tag first puts it
//! aside, so that receives may come in another order than sends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::communicator::Shm;
use super::flag::reached;
use super::segment::{Channel, SLOTS, SLOT_BYTES};
use crate::{Collective, DType, Error, ErrorKind, Result};

/// What a rank has received from another one and nobody has asked for yet.
#[derive(Default)]
pub struct Incoming {
    aside: VecDeque<Message>,
    /// Parts taken out of the channel.
    taken: u32,
}

struct Message {
    tag: i32,
    dtype: u32,
    bytes: Vec<u8>,
}

/// What the first part of the next message in a channel says.
struct Front {
    tag: i32,
    dtype: u32,
    total: usize,
}

impl Shm {
    /// Sends a message: returns when all of it is in the channel.
    ///
    /// # Safety
    /// The buffer of `call` is valid for its count.
    pub(super) unsafe fn send(&self, call: &Collective<'_>, deadline: Instant) -> Result<()> {
        let peer = call.root.unwrap_or_default();
        let _turn = self.outgoing[peer].lock();
        let channel = self.segment.channel(self.rank, peer);
        let total = call.bytes();
        let mut start = 0;
        loop {
            let filled = channel.filled.get();
            let room = filled.wrapping_add(1).wrapping_sub(SLOTS as u32);
            self.wait(&channel.emptied, room, peer, deadline)?;
            let bytes = SLOT_BYTES.min(total - start);
            let part = channel.parts[filled as usize % SLOTS].get();
            // SAFETY: the receiver has emptied the part; only this thread fills it, holding the turn.
            unsafe {
                (*part).tag = call.tag;
                (*part).dtype = call.dtype as u32;
                (*part).total = total as u64;
                let to = (&raw mut (*part).bytes).cast::<u8>();
                std::ptr::copy_nonoverlapping(non_null(call.send[0]).add(start), to, bytes);
            }
            channel.filled.publish(filled.wrapping_add(1));
            if start == 0 {
                self.segment.control(peer).doorbell.bump();
            }
            start += bytes;
            if start >= total {
                return Ok(());
            }
        }
    }

    /// Receives a message with the call's tag, from its rank or from any; returns whose it was.
    ///
    /// # Safety
    /// The buffer of `call` is valid for its count.
    pub(super) unsafe fn receive(&self, call: &Collective<'_>, deadline: Instant) -> Result<usize> {
        if let Some(peer) = call.root {
            let mut incoming = self.incoming[peer].lock();
            loop {
                // SAFETY: the caller's promise.
                if unsafe { self.take(&mut incoming, call, peer, deadline)? } {
                    return Ok(peer);
                }
                let next = incoming.taken.wrapping_add(1);
                self.wait(
                    &self.segment.channel(peer, self.rank).filled,
                    next,
                    peer,
                    deadline,
                )?;
            }
        }
        let doorbell = &self.segment.control(self.rank).doorbell;
        loop {
            let seen = doorbell.get();
            for peer in self.others() {
                // Who holds the lock is waiting for a message of its own from that rank.
                let Some(mut incoming) = self.incoming[peer].try_lock() else {
                    continue;
                };
                // SAFETY: the caller's promise.
                if unsafe { self.take(&mut incoming, call, peer, deadline)? } {
                    return Ok(peer);
                }
            }
            self.check_abort()?;
            if let Some(gone) = self.others().find(|&peer| self.is_gone(peer)) {
                return Err(self.lost(gone));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(ErrorKind::Timeout, "no rank has sent in time"));
            }
            doorbell.sleep(seen, left.min(Duration::from_millis(50)));
        }
    }

    /// Takes a message with the call's tag if one is there. Others before it are put aside.
    ///
    /// # Safety
    /// The buffer of `call` is valid for its count.
    unsafe fn take(
        &self,
        incoming: &mut Incoming,
        call: &Collective<'_>,
        peer: usize,
        deadline: Instant,
    ) -> Result<bool> {
        let expected = call.bytes();
        if let Some(index) = incoming
            .aside
            .iter()
            .position(|message| message.tag == call.tag)
        {
            if let Some(message) = incoming.aside.remove(index) {
                self.expect(call, peer, message.bytes.len(), message.dtype)?;
                // SAFETY: the buffer holds as many bytes as the message has.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        message.bytes.as_ptr(),
                        non_null_mut(call.recv[0]),
                        expected,
                    );
                }
                return Ok(true);
            }
        }
        let channel = self.segment.channel(peer, self.rank);
        while reached(channel.filled.get(), incoming.taken.wrapping_add(1)) {
            let front = front(channel, incoming.taken);
            if front.tag == call.tag {
                let fits = self.expect(call, peer, front.total, front.dtype);
                if let Err(error) = fits {
                    // Taken out all the same: the next message is not at fault.
                    let mut lost = vec![0; front.total];
                    // SAFETY: as long as the message.
                    unsafe {
                        self.drain(
                            channel,
                            incoming,
                            peer,
                            lost.as_mut_ptr(),
                            front.total,
                            deadline,
                        )?
                    };
                    return Err(error);
                }
                // SAFETY: the buffer holds as many bytes as the message has.
                unsafe {
                    self.drain(channel, incoming, peer, call.recv[0], front.total, deadline)?
                };
                return Ok(true);
            }
            let mut bytes = vec![0; front.total];
            // SAFETY: as long as the message.
            unsafe {
                self.drain(
                    channel,
                    incoming,
                    peer,
                    bytes.as_mut_ptr(),
                    front.total,
                    deadline,
                )?
            };
            incoming.aside.push_back(Message {
                tag: front.tag,
                dtype: front.dtype,
                bytes,
            });
        }
        Ok(false)
    }

    /// Reads the message at the front of a channel.
    ///
    /// # Safety
    /// `to` is valid for `total` bytes.
    unsafe fn drain(
        &self,
        channel: &Channel,
        incoming: &mut Incoming,
        peer: usize,
        to: *mut u8,
        total: usize,
        deadline: Instant,
    ) -> Result<()> {
        let mut start = 0;
        loop {
            let next = incoming.taken.wrapping_add(1);
            self.wait(&channel.filled, next, peer, deadline)?;
            let bytes = SLOT_BYTES.min(total - start);
            let part = channel.parts[incoming.taken as usize % SLOTS].get();
            // SAFETY: the sender has filled the part and does not touch it before it is emptied.
            unsafe {
                let from = (&raw const (*part).bytes).cast::<u8>();
                std::ptr::copy_nonoverlapping(from, non_null_mut(to).add(start), bytes);
            }
            incoming.taken = next;
            channel.emptied.publish(next);
            start += bytes;
            if start >= total {
                return Ok(());
            }
        }
    }

    /// Refuses a message of another size or type than the receiver's.
    fn expect(&self, call: &Collective<'_>, peer: usize, bytes: usize, dtype: u32) -> Result<()> {
        if bytes == call.bytes() && dtype == call.dtype as u32 {
            return Ok(());
        }
        let name = DType::from_code(dtype).map_or("?", DType::name);
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "rank {peer} sent {bytes} bytes of {name}, {} of {} are expected",
                call.bytes(),
                call.dtype.name()
            ),
        )
        .due_to(peer))
    }
}

fn front(channel: &Channel, taken: u32) -> Front {
    let part = channel.parts[taken as usize % SLOTS].get();
    // SAFETY: the sender has filled the part and does not touch it before it is emptied.
    unsafe {
        Front {
            tag: (*part).tag,
            dtype: (*part).dtype,
            total: (*part).total as usize,
        }
    }
}

/// An address to copy no bytes from, in place of NULL.
fn non_null(address: *const u8) -> *const u8 {
    if address.is_null() {
        std::ptr::dangling()
    } else {
        address
    }
}

/// An address to copy no bytes to, in place of NULL.
fn non_null_mut(address: *mut u8) -> *mut u8 {
    if address.is_null() {
        std::ptr::dangling_mut()
    } else {
        address
    }
}
