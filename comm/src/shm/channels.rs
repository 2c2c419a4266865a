//! Messages between two ranks: a ring of parts for every ordered pair of ranks.
//!
//! The parts of a message follow each other. A receive puts messages with another tag aside, so that
//! receives may come in another order than sends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::flag::reached;
use super::member::Member;
use super::segment::{Channel, SLOT_BYTES, SLOTS};
use crate::{Collective, DType, Error, ErrorKind, Result};

/// The receiving end of the channel from one rank.
#[derive(Default)]
struct Incoming {
    aside: VecDeque<Message>,
    /// The number of parts taken out of the channel.
    taken: u32,
}

struct Message {
    tag: i32,
    dtype: u32,
    bytes: Vec<u8>,
}

/// The description of the next message in a channel, from its first part.
struct Front {
    tag: i32,
    dtype: u32,
    total: usize,
}

/// The channels between one rank and the others, by rank.
pub(super) struct Channels {
    /// Held during a send, so that messages to a rank go one after the other.
    outgoing: Vec<Mutex<()>>,
    incoming: Vec<Mutex<Incoming>>,
}

impl Channels {
    /// Channels without messages, in a group of `size`.
    pub(super) fn new(size: usize) -> Self {
        Self {
            outgoing: (0..size).map(|_| Mutex::new(())).collect(),
            incoming: (0..size).map(|_| Mutex::default()).collect(),
        }
    }

    /// Sends a message. Returns when all parts are in the channel.
    ///
    /// # Safety
    /// The buffer of `call` is valid for its count.
    pub(super) unsafe fn send(
        &self,
        member: &Member,
        call: &Collective<'_>,
        deadline: Instant,
    ) -> Result<()> {
        let peer = call.root.unwrap_or_default();
        let _turn = self.outgoing[peer].lock();
        let channel = member.segment.channel(member.rank, peer);
        let total = call.bytes();
        let mut start = 0;
        loop {
            let filled = channel.filled.get();
            let room = filled.wrapping_add(1).wrapping_sub(SLOTS as u32);
            member.wait(&channel.emptied, room, peer, deadline)?;
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
                member.segment.control(peer).doorbell.bump();
            }
            start += bytes;
            if start >= total {
                return Ok(());
            }
        }
    }

    /// Receives a message with the call's tag, from the call's rank or, without one, from any. Returns the sender.
    ///
    /// # Safety
    /// The buffer of `call` is valid for its count.
    pub(super) unsafe fn receive(
        &self,
        member: &Member,
        call: &Collective<'_>,
        deadline: Instant,
    ) -> Result<usize> {
        if let Some(peer) = call.root {
            let mut incoming = self.incoming[peer].lock();
            let receive = Receive::new(member, call, peer, deadline);
            loop {
                // SAFETY: the caller's promise.
                if unsafe { receive.take(&mut incoming)? } {
                    return Ok(peer);
                }
                let next = incoming.taken.wrapping_add(1);
                member.wait(&receive.channel.filled, next, peer, deadline)?;
            }
        }
        let doorbell = &member.segment.control(member.rank).doorbell;
        let mut lost = None;
        loop {
            let seen = doorbell.get();
            for peer in member.others() {
                // The thread that holds the lock is waiting for a message of its own from that rank.
                let Some(mut incoming) = self.incoming[peer].try_lock() else {
                    continue;
                };
                let receive = Receive::new(member, call, peer, deadline);
                // SAFETY: the caller's promise.
                if unsafe { receive.take(&mut incoming)? } {
                    return Ok(peer);
                }
            }
            member.check_abort()?;
            if let Some(peer) = lost {
                return Err(member.lost(peer));
            }
            lost = lost_sender(member);
            if lost.is_some() {
                continue; // The rank may have sent just before it left, or its process ended.
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(ErrorKind::Timeout, "no rank has sent in time"));
            }
            doorbell.sleep(seen, left.min(Duration::from_millis(50)));
        }
    }
}

/// A receive that looks for its message among those of one rank.
struct Receive<'a> {
    member: &'a Member,
    call: &'a Collective<'a>,
    peer: usize,
    channel: &'a Channel,
    deadline: Instant,
}

impl<'a> Receive<'a> {
    fn new(member: &'a Member, call: &'a Collective<'a>, peer: usize, deadline: Instant) -> Self {
        Self {
            member,
            call,
            peer,
            channel: member.segment.channel(peer, member.rank),
            deadline,
        }
    }

    /// Takes the first message with the call's tag, if one has arrived. Puts the messages before it aside.
    ///
    /// # Safety
    /// The buffer of the call is valid for its count.
    unsafe fn take(&self, incoming: &mut Incoming) -> Result<bool> {
        let (to, tag) = (self.call.recv[0], self.call.tag);
        let index = incoming.aside.iter().position(|aside| aside.tag == tag);
        if let Some(message) = index.and_then(|index| incoming.aside.remove(index)) {
            let bytes = message.bytes.len();
            self.expect(bytes, message.dtype)?;
            // SAFETY: the buffer holds as many bytes as the message has.
            unsafe {
                std::ptr::copy_nonoverlapping(message.bytes.as_ptr(), non_null_mut(to), bytes);
            }
            return Ok(true);
        }
        while reached(self.channel.filled.get(), incoming.taken.wrapping_add(1)) {
            let front = front(self.channel, incoming.taken);
            if front.tag == tag && self.expect(front.total, front.dtype).is_ok() {
                // SAFETY: the buffer holds as many bytes as the message has.
                unsafe { self.drain(incoming, to, front.total)? };
                return Ok(true);
            }
            let mut bytes = vec![0; front.total];
            // SAFETY: as long as the message.
            unsafe { self.drain(incoming, bytes.as_mut_ptr(), front.total)? };
            if front.tag == tag {
                // A message that does not fit is taken out too, so that the next receive finds the message behind it.
                return self.expect(front.total, front.dtype).map(|()| false);
            }
            incoming.aside.push_back(Message {
                tag: front.tag,
                dtype: front.dtype,
                bytes,
            });
        }
        Ok(false)
    }

    /// Reads the message at the front of the channel.
    ///
    /// # Safety
    /// `to` is valid for `total` bytes.
    unsafe fn drain(&self, incoming: &mut Incoming, to: *mut u8, total: usize) -> Result<()> {
        let mut start = 0;
        loop {
            let next = incoming.taken.wrapping_add(1);
            self.member
                .wait(&self.channel.filled, next, self.peer, self.deadline)?;
            let bytes = SLOT_BYTES.min(total - start);
            let part = self.channel.parts[incoming.taken as usize % SLOTS].get();
            // SAFETY: the sender has filled the part and does not touch it before it is emptied.
            unsafe {
                let from = (&raw const (*part).bytes).cast::<u8>();
                std::ptr::copy_nonoverlapping(from, non_null_mut(to).add(start), bytes);
            }
            incoming.taken = next;
            self.channel.emptied.publish(next);
            start += bytes;
            if start >= total {
                return Ok(());
            }
        }
    }

    /// Refuses a message of another size or type than the receiver's.
    fn expect(&self, bytes: usize, dtype: u32) -> Result<()> {
        let call = self.call;
        if bytes == call.bytes() && dtype == call.dtype as u32 {
            return Ok(());
        }
        let name = DType::from_code(dtype).map_or("?", DType::name);
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "rank {} sent {bytes} bytes of {name}, {} of {} are expected",
                self.peer,
                call.bytes(),
                call.dtype.name()
            ),
        )
        .due_to(self.peer))
    }
}

/// A rank that a message from any rank is not waited for: one whose process ended within the group, or one of ranks that
/// have all left.
fn lost_sender(member: &Member) -> Option<usize> {
    let died = |peer: &usize| !member.has_left(*peer) && member.is_gone(*peer);
    let all_left = || member.others().all(|peer| member.has_left(peer));
    let left = || member.others().next().filter(|_| all_left());
    member.others().find(died).or_else(left)
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

/// The address, or in place of NULL one that no bytes can be copied from.
fn non_null(address: *const u8) -> *const u8 {
    if address.is_null() {
        std::ptr::dangling()
    } else {
        address
    }
}

/// The address, or in place of NULL one that no bytes can be copied to.
fn non_null_mut(address: *mut u8) -> *mut u8 {
    if address.is_null() {
        std::ptr::dangling_mut()
    } else {
        address
    }
}
