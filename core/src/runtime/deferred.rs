//! Blocks freed by their caller while other streams still use them.
//!
//! Freeing records an event on each of those streams; the block is free when all have passed. Events
//! of one stream pass in order, so only the oldest of each stream is ever asked.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::ErrorKind;

use super::streams::Streams;
use super::vendor::{Event, Vendor};

/// What a block waits for on one stream.
enum Waiting {
    /// The point at which it was freed.
    Event(Arc<dyn Event>),
    /// No event could be recorded: everything queued on the stream.
    Idle,
}

/// The waiting blocks of one device, `T` naming a block.
pub(super) struct Deferred<T> {
    /// By stream, for the streams that occur.
    queues: Vec<(u64, VecDeque<(Waiting, T)>)>,
    waiting: usize,
    spare: Vec<Arc<dyn Event>>,
}

impl<T: Copy> Deferred<T> {
    pub(super) fn new() -> Self {
        Self {
            queues: Vec::new(),
            waiting: 0,
            spare: Vec::new(),
        }
    }

    /// Whether nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Lets `block` wait for what is queued on `stream` now. False when there is nothing to wait for.
    pub(super) fn push(
        &mut self,
        vendor: &dyn Vendor,
        streams: &Streams,
        device: usize,
        stream: u64,
        block: T,
    ) -> bool {
        let Ok(target) = streams.get(device, stream) else {
            return false;
        };
        let event = match self.spare.pop() {
            Some(event) => Ok(event),
            None => vendor.event(device, false),
        };
        let recorded = event.and_then(|event| target.record(&*event).map(|()| event));
        let waiting = match recorded {
            Ok(event) if passed(&*event) => {
                self.spare.push(event);
                return false;
            }
            Ok(event) => Waiting::Event(event),
            Err(_) if target.is_idle() => return false,
            Err(_) => Waiting::Idle,
        };
        self.waiting += 1;
        match self.queues.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, queue)) => queue.push_back((waiting, block)),
            None => self
                .queues
                .push((stream, VecDeque::from([(waiting, block)]))),
        }
        true
    }

    /// Calls `done` for each block and stream that has passed.
    pub(super) fn poll(&mut self, streams: &Streams, device: usize, mut done: impl FnMut(T)) {
        for (stream, queue) in &mut self.queues {
            while let Some((waiting, block)) = queue.front() {
                let over = match waiting {
                    Waiting::Event(event) => passed(&**event),
                    Waiting::Idle => streams.get(device, *stream).map_or(true, |s| s.is_idle()),
                };
                if !over {
                    break;
                }
                done(*block);
                self.waiting -= 1;
                if let Some((Waiting::Event(event), _)) = queue.pop_front() {
                    self.spare.push(event);
                }
            }
        }
    }
}

/// Whether the event is over. A failure before it is the stream's to report: the memory is unused
/// all the same. A vendor that cannot be asked here (in work running on a stream) is asked again.
fn passed(event: &dyn Event) -> bool {
    match event.query() {
        Ok(over) => over,
        Err(error) => error.kind() != ErrorKind::Unsupported,
    }
}
