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

    /// The number at an address, which others change too.
    ///
    /// # Safety
    /// The address is that of an aligned number that lives as long as the process, and that all use as an atomic one alone.
    pub unsafe fn number_at(address: *mut u64) -> &'static AtomicU64 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(address) }
    }

    /// The number of this thread, counted from 0 as threads first ask.
    #[inline]
    pub fn thread_number() -> usize {
        thread_local! {
            static NUMBER: usize = {
                static NEXT: AtomicU64 = AtomicU64::new(0);
                NEXT.fetch_add(1, Ordering::Relaxed) as usize
            };
        }
        // In the last moments of a thread its number is gone, and any magazine will do.
        NUMBER.try_with(|number| *number).unwrap_or(0)
    }
}

#[cfg(loom)]
mod imp {
    use std::cell::Cell;

    pub use loom::sync::MutexGuard;
    pub use loom::sync::atomic::{AtomicU64, Ordering};

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

    /// No model opens a vendor's library, which alone shares numbers.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn number_at(_: *mut u64) -> &'static AtomicU64 {
        unreachable!("loom does not see numbers that others change")
    }

    loom::thread_local! {
        static NUMBER: Cell<Option<usize>> = Cell::new(None);
    }

    /// The number of this thread: that of the model is 0, others get the one that [`set_thread_number`] gave.
    pub fn thread_number() -> usize {
        NUMBER.with(|number| number.get().unwrap_or(0))
    }

    /// Numbers this thread of a model.
    pub fn set_thread_number(to: usize) {
        NUMBER.with(|number| number.set(Some(to)));
    }
}

#[cfg(all(test, loom))]
pub use imp::set_thread_number;
pub use imp::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, number_at, thread_number};
