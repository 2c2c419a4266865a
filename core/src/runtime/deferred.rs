//! Blocks freed by their caller while other streams still use them.
//!
//! Freeing records an event on each of those streams; the block is free when all events have passed. The
//! events of one stream pass in order, so polling asks only the oldest event of each stream.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::ErrorKind;

use super::streams::Streams;
use super::vendor::{Event, Vendor};

/// The point on a stream that a block waits for.
enum Waiting {
    /// An event recorded when the block was freed.
    Event(Arc<dyn Event>),
    /// The end of all queued work, because no event could be recorded, or the stream was being captured.
    Idle,
}

/// The waiting blocks of one device, `T` naming a block.
pub(super) struct Deferred<T> {
    /// Waiting blocks in order of their events, for each stream that any block waits for.
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

    /// Whether no block waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Lets `block` wait for the work queued on `stream` now. False when the stream is idle.
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
        // An event recorded in a capture becomes a part of the graph, which nothing reaches.
        if target.capture().is_ok_and(|capture| capture.is_some()) {
            self.wait(stream, Waiting::Idle, block);
            return true;
        }
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
        self.wait(stream, waiting, block);
        true
    }

    fn wait(&mut self, stream: u64, waiting: Waiting, block: T) {
        self.waiting += 1;
        match self.queues.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, queue)) => queue.push_back((waiting, block)),
            None => self
                .queues
                .push((stream, VecDeque::from([(waiting, block)]))),
        }
    }

    /// Calls `done` for each block and stream whose event has passed.
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

/// Whether the event has passed. A failure of the work before the event counts as passed: the stream reports
/// the failure, and the memory is unused. Where the vendor refuses the question (in work running on a
/// stream), a later poll asks again.
fn passed(event: &dyn Event) -> bool {
    match event.query() {
        Ok(over) => over,
        Err(error) => error.kind() != ErrorKind::Unsupported,
    }
}
