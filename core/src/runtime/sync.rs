//! Locks and atomics for code that loom checks: parking_lot's and std's in a build, loom's under
//! `--cfg loom`.

#[cfg(not(loom))]
mod imp {
    pub use parking_lot::MutexGuard;
    pub use std::sync::atomic::{AtomicU64, Ordering};

    /// A mutex that is never poisoned.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        /// Wraps `value`.
        pub const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        /// Takes the lock.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock()
        }
    }

    /// A condition variable for [`Mutex`].
    #[derive(Debug, Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// A condition nobody waits for.
        pub const fn new() -> Self {
            Self(parking_lot::Condvar::new())
        }

        /// Releases the lock while waiting; may wake for no reason.
        pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes every waiter.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(loom)]
mod imp {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
    pub use loom::sync::MutexGuard;

    /// A mutex that is never poisoned.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Wraps `value`.
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        /// Takes the lock.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|error| error.into_inner())
        }
    }

    /// A condition variable for [`Mutex`].
    #[derive(Debug, Default)]
    pub struct Condvar(loom::sync::Condvar);

    impl Condvar {
        /// A condition nobody waits for.
        pub fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        /// Releases the lock while waiting; may wake for no reason.
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0
                .wait(guard)
                .unwrap_or_else(|error| error.into_inner())
        }

        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes every waiter.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

pub use imp::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
