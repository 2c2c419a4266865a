//! Every interleaving of one publisher and one waiter, with a futex made of a lock and a condition.

use std::time::Duration;

use loom::sync::{Arc, Condvar, Mutex};

use super::flag::{Flag, reached};

/// The kernel's side of a futex: comparing the value and going to sleep are one step under its lock.
pub struct Kernel {
    lock: Mutex<()>,
    woken: Condvar,
}

impl Kernel {
    pub fn new() -> Self {
        Self {
            lock: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    pub fn wait(&self, still: impl Fn() -> bool) {
        let guard = self.lock.lock().unwrap();
        if still() {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    pub fn wake(&self) {
        let _guard = self.lock.lock().unwrap();
        self.woken.notify_all();
    }
}

/// A lost wake-up would leave the waiter asleep for ever, which loom reports as a deadlock; a missing
/// order between data and flag shows as an old value.
#[test]
fn a_published_value_is_never_missed() {
    loom::model(|| {
        let shared = Arc::new((Flag::new(), loom::sync::atomic::AtomicU32::new(0)));
        let publisher = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                shared.1.store(7, loom::sync::atomic::Ordering::Relaxed);
                shared.0.publish(1);
            })
        };
        loop {
            let seen = shared.0.get();
            if reached(seen, 1) {
                break;
            }
            shared.0.sleep(seen, Duration::MAX);
        }
        assert_eq!(shared.1.load(loom::sync::atomic::Ordering::Relaxed), 7);
        publisher.join().unwrap();
    });
}

/// Two threads ring a bell and one waits for it, as a rank waits for messages from several others.
#[test]
fn a_bell_is_heard_as_often_as_it_was_rung() {
    // All interleavings of three threads are too many. Most faults need few switches between threads.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let bell = Arc::new(Flag::new());
        let ringers: Vec<_> = (0..2)
            .map(|_| {
                let bell = Arc::clone(&bell);
                loom::thread::spawn(move || bell.bump())
            })
            .collect();
        loop {
            let seen = bell.get();
            if reached(seen, 2) {
                break;
            }
            bell.sleep(seen, Duration::MAX);
        }
        for ringer in ringers {
            ringer.join().unwrap();
        }
    });
}
