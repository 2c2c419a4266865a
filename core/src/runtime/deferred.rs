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

/// The waiting blocks of one allocator, `T` naming a block.
pub(super) struct Deferred<T> {
    queues: Vec<Queue<T>>,
    waiting: usize,
}

/// The blocks that wait for one stream of one device, in order of their events.
struct Queue<T> {
    device: usize,
    stream: u64,
    blocks: VecDeque<(Waiting, T)>,
    spare: Vec<Arc<dyn Event>>,
}

impl<T: Copy> Deferred<T> {
    pub(super) fn new() -> Self {
        Self {
            queues: Vec::new(),
            waiting: 0,
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
        let queue = self.queue(device, stream);
        // An event recorded in a capture becomes a part of the graph, which nothing reaches.
        let waiting = if target.capture().is_ok_and(|capture| capture.is_some()) {
            Waiting::Idle
        } else {
            let event = match queue.spare.pop() {
                Some(event) => Ok(event),
                None => vendor.event(device, false),
            };
            let recorded = event.and_then(|event| target.record(&*event).map(|()| event));
            match recorded {
                Ok(event) if passed(&*event) => {
                    queue.spare.push(event);
                    return false;
                }
                Ok(event) => Waiting::Event(event),
                Err(_) if target.is_idle() => return false,
                Err(_) => Waiting::Idle,
            }
        };
        queue.blocks.push_back((waiting, block));
        self.waiting += 1;
        true
    }

    fn queue(&mut self, device: usize, stream: u64) -> &mut Queue<T> {
        let of_stream = |queue: &Queue<T>| (queue.device, queue.stream) == (device, stream);
        let place = self.queues.iter().position(of_stream);
        let place = place.unwrap_or_else(|| {
            self.queues.push(Queue {
                device,
                stream,
                blocks: VecDeque::new(),
                spare: Vec::new(),
            });
            self.queues.len() - 1
        });
        &mut self.queues[place]
    }

    /// Calls `done` for each block and stream whose event has passed.
    pub(super) fn poll(&mut self, streams: &Streams, mut done: impl FnMut(T)) {
        for queue in &mut self.queues {
            while let Some((waiting, block)) = queue.blocks.front() {
                let over = match waiting {
                    Waiting::Event(event) => passed(&**event),
                    Waiting::Idle => {
                        let target = streams.get(queue.device, queue.stream);
                        target.map_or(true, |target| target.is_idle())
                    }
                };
                if !over {
                    break;
                }
                done(*block);
                self.waiting -= 1;
                if let Some((Waiting::Event(event), _)) = queue.blocks.pop_front() {
                    queue.spare.push(event);
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
