//! The queue behind a host stream: items run in order on one worker, and any thread may wait for a place in it.
//!
//! One number, `completed`, decides about progress: a stream is idle when `completed` equals the number of
//! items submitted, an event has passed when `completed` has reached the event's place. `completed` is stored
//! with release after an item has run and loaded with acquire, so a thread that sees an item finished sees
//! the item's effects.

use std::collections::VecDeque;

use crate::error::Error;
use crate::runtime::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

/// A queue of items. Places are numbered from 1.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    /// The worker waits here for items.
    arrived: Condvar,
    /// All other threads wait here for progress.
    advanced: Condvar,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// 1 while an error has not been reported.
    failed: AtomicU64,
    /// The number of unfinished items and unreported errors of all queues of the vendor. Before host code reads
    /// device memory it must wait for the items and report the errors.
    pending: &'static AtomicU64,
}

struct State<T> {
    items: VecDeque<T>,
    error: Option<Error>,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(pending: &'static AtomicU64) -> Self {
        Self {
            state: Mutex::new(State {
                items: VecDeque::new(),
                error: None,
                closed: false,
            }),
            arrived: Condvar::new(),
            advanced: Condvar::new(),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            pending,
        }
    }

    /// Appends an item and returns its place.
    pub(super) fn push(&self, item: T) -> u64 {
        let mut state = self.state.lock();
        // Counted before the worker can see it, so that `pending` never runs below 0.
        self.pending.fetch_add(1, Ordering::Relaxed);
        let place = self.submitted.load(Ordering::Relaxed) + 1;
        self.submitted.store(place, Ordering::Release);
        state.items.push_back(item);
        drop(state);
        self.arrived.notify_one();
        place
    }

    /// The worker's next item. `None` once the queue is closed and empty.
    pub(super) fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self.arrived.wait(state);
        }
    }

    /// Marks the item that the worker took last as run. Of several unreported errors the first is kept.
    pub(super) fn finish(&self, outcome: Result<(), Error>) {
        let mut state = self.state.lock();
        if let Err(error) = outcome {
            self.keep(&mut state, error);
        }
        self.pending.fetch_sub(1, Ordering::Release);
        let completed = self.completed.load(Ordering::Relaxed) + 1;
        self.completed.store(completed, Ordering::Release);
        drop(state);
        self.advanced.notify_all();
    }

    fn keep(&self, state: &mut MutexGuard<'_, State<T>>, error: Error) {
        if state.error.is_none() {
            state.error = Some(error);
            self.pending.fetch_add(1, Ordering::Relaxed);
            self.failed.store(1, Ordering::Release);
        }
    }

    /// The place of the last item.
    pub(super) fn last(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Whether the item at `place` and all before it have run.
    pub(super) fn has_passed(&self, place: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= place
    }

    /// Whether every item has run.
    pub(super) fn is_idle(&self) -> bool {
        self.has_passed(self.last())
    }

    /// Waits until the item at `place` and all before it have run.
    pub(super) fn wait_for(&self, place: u64) {
        if self.has_passed(place) {
            return;
        }
        let mut state = self.state.lock();
        while !self.has_passed(place) {
            state = self.advanced.wait(state);
        }
    }

    /// The unreported error, left in place.
    pub(super) fn error(&self) -> Option<Error> {
        if self.failed.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.state.lock().error.clone()
    }

    /// Reports the error: it is gone afterwards.
    pub(super) fn take_error(&self) -> Option<Error> {
        if self.failed.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut state = self.state.lock();
        self.failed.store(0, Ordering::Release);
        let error = state.error.take();
        if error.is_some() {
            self.pending.fetch_sub(1, Ordering::Release);
        }
        error
    }

    /// Forgets the error `reported`, which an event has reported already.
    pub(super) fn forget_error(&self, reported: &Error) {
        if self.failed.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let same = |error: &Error| error.to_string() == reported.to_string();
        if state.error.as_ref().is_some_and(same) {
            state.error = None;
            self.failed.store(0, Ordering::Release);
            self.pending.fetch_sub(1, Ordering::Release);
        }
    }

    /// Lets the worker end once it has run all queued items.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.arrived.notify_one();
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        // An error that nobody can ask for any more must leave `pending`, which belongs to all queues.
        self.take_error();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::*;

    fn queue() -> Arc<Queue<u64>> {
        Arc::new(Queue::new(Box::leak(Box::new(AtomicU64::new(0)))))
    }

    fn spawn_worker(
        queue: &Arc<Queue<u64>>,
        mut run: impl FnMut(u64) -> Result<(), Error> + 'static,
    ) -> thread::JoinHandle<()> {
        let queue = Arc::clone(queue);
        thread::spawn(move || {
            while let Some(item) = queue.next() {
                queue.finish(run(item));
            }
        })
    }

    /// Memory written by work. Loom reports every access that is not ordered.
    struct Cell(UnsafeCell<u64>);
    // SAFETY: unordered access is what the model looks for.
    unsafe impl Sync for Cell {}

    /// Waiting for a place makes the item's writes visible, and no wake-up is lost.
    #[test]
    fn a_waiter_sees_the_effects() {
        loom::model(|| {
            let queue = queue();
            let cell = Arc::new(Cell(UnsafeCell::new(0)));
            let written = Arc::clone(&cell);
            let worker = spawn_worker(&queue, move |item| {
                // SAFETY: ordered by the queue, which is what the model checks.
                written.0.with_mut(|value| unsafe { *value += item });
                Ok(())
            });
            queue.push(1);
            let place = queue.push(2);
            queue.wait_for(place);
            // SAFETY: as above.
            assert_eq!(cell.0.with(|value| unsafe { *value }), 3);
            assert!(queue.is_idle());
            assert_eq!(queue.pending.load(Ordering::Acquire), 0);
            queue.close();
            worker.join().expect("the worker ends");
        });
    }

    /// Reading `pending == 0` is enough to use what the work wrote.
    #[test]
    fn pending_zero_publishes() {
        loom::model(|| {
            let queue = queue();
            let cell = Arc::new(Cell(UnsafeCell::new(0)));
            let written = Arc::clone(&cell);
            let worker = spawn_worker(&queue, move |item| {
                // SAFETY: ordered by the queue.
                written.0.with_mut(|value| unsafe { *value = item });
                Ok(())
            });
            queue.push(7);
            if queue.pending.load(Ordering::Acquire) == 0 {
                // SAFETY: as above.
                assert_eq!(cell.0.with(|value| unsafe { *value }), 7);
            }
            queue.close();
            worker.join().expect("the worker ends");
        });
    }

    /// An idle queue has published its error; it is reported exactly once.
    #[test]
    fn an_error_is_reported_once() {
        loom::model(|| {
            let queue = queue();
            let worker = spawn_worker(&queue, |_| Err(Error::device("test", "failed")));
            let place = queue.push(1);
            let other = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || usize::from(queue.take_error().is_some()))
            };
            queue.wait_for(place);
            let mine = usize::from(queue.take_error().is_some());
            assert_eq!(mine + other.join().expect("no panic"), 1);
            queue.close();
            worker.join().expect("the worker ends");
        });
    }

    /// Two producers: every item runs once and the count returns to 0.
    #[test]
    fn two_producers_are_counted() {
        loom::model(|| {
            let queue = queue();
            let sum = Arc::new(AtomicU64::new(0));
            let total = Arc::clone(&sum);
            let worker = spawn_worker(&queue, move |item| {
                total.fetch_add(item, Ordering::Relaxed);
                Ok(())
            });
            let other = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.push(10))
            };
            queue.push(1);
            other.join().expect("no panic");
            queue.close();
            worker.join().expect("the worker ends");
            assert_eq!(sum.load(Ordering::Relaxed), 11);
            assert_eq!(queue.pending.load(Ordering::Relaxed), 0);
        });
    }
}
