//! The place in a stream's queue that an event stands for.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::error::{Error, Result};

use super::queue::Queue;

/// Nanoseconds since a fixed moment before the first event.
fn now() -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    EPOCH.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The worker's note on reaching a recorded event: the time, and an earlier error.
#[derive(Debug)]
pub(super) struct Stamp {
    timing: bool,
    time: OnceLock<u64>,
    error: OnceLock<Error>,
}

impl Stamp {
    /// An empty stamp. Without `timing` no time will be noted.
    pub(super) fn new(timing: bool) -> Self {
        Self {
            timing,
            time: OnceLock::new(),
            error: OnceLock::new(),
        }
    }

    /// Notes this moment, and the stream's unreported error.
    pub(super) fn set(&self, error: Option<Error>) {
        // The worker sets a stamp once; the result of `set` carries nothing new.
        if self.timing {
            let _ = self.time.set(now());
        }
        if let Some(error) = error {
            let _ = self.error.set(error);
        }
    }
}

/// The place in a queue at which an event was recorded, and the stamp that the worker sets there.
pub(super) struct Recorded<T> {
    queue: Arc<Queue<T>>,
    place: u64,
    stamp: Arc<Stamp>,
}

impl<T> Clone for Recorded<T> {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            place: self.place,
            stamp: Arc::clone(&self.stamp),
        }
    }
}

impl<T> Recorded<T> {
    /// The item at `place` of `queue` sets `stamp`.
    pub(super) fn new(queue: Arc<Queue<T>>, place: u64, stamp: Arc<Stamp>) -> Self {
        Self {
            queue,
            place,
            stamp,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.queue.has_passed(self.place)
    }

    /// Whether the place is in `queue`, whose later work comes after it without a wait.
    pub(super) fn is_on(&self, queue: &Arc<Queue<T>>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// Waits until the place is passed, then returns [`Self::outcome`]. Callers make sure that waiting is
    /// allowed on their thread.
    pub(super) fn wait(&self) -> Result<()> {
        self.queue.wait_for(self.place);
        self.outcome()
    }

    /// Returns [`Self::outcome`] and marks an error as reported, so that the stream does not report it again.
    pub(super) fn report(&self) -> Result<()> {
        let outcome = self.outcome();
        if let Err(error) = &outcome {
            self.queue.forget_error(error);
        }
        outcome
    }

    /// The error of the work before the place. Only valid once the place is passed.
    pub(super) fn outcome(&self) -> Result<()> {
        match self.stamp.error.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// The worker's time at the place, in nanoseconds; `None` before the place is passed, and without timing.
    pub(super) fn time(&self) -> Option<u64> {
        self.stamp.time.get().copied().filter(|_| self.is_over())
    }
}
