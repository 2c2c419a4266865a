//! A counter in shared memory that processes wait for: with a short spin, then with the kernel's futex.
//!
//! A waiter counts itself in `sleepers` before it reads the value a last time; a publisher writes the value
//! before it reads `sleepers`. Both orders are sequentially consistent, so that one of the two sees the
//! other. `loom_tests` checks every interleaving.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};

use std::time::Duration;

/// A counter on a cache line of its own.
#[repr(C, align(64))]
pub struct Flag {
    value: AtomicU32,
    sleepers: AtomicU32,
    #[cfg(loom)]
    kernel: super::loom_tests::Kernel,
}

/// Whether `value` has reached `target`; counters wrap around.
pub fn reached(value: u32, target: u32) -> bool {
    value.wrapping_sub(target) < u32::MAX / 2
}

impl Flag {
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            value: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            kernel: super::loom_tests::Kernel::new(),
        }
    }

    /// The value. The caller sees all that was written before the value was published.
    pub fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Publishes `value` and all earlier writes, and wakes the sleepers.
    pub fn publish(&self, value: u32) {
        self.value.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Advances a counter that several threads or processes advance.
    pub fn bump(&self) {
        self.value.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Sleeps until the value differs from `seen`, a wake-up, or the end of `limit`.
    pub fn sleep(&self, seen: u32, limit: Duration) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.value.load(Ordering::Acquire) == seen {
            self.wait_in_kernel(seen, limit);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes every sleeper.
    #[cfg(not(loom))]
    pub fn wake(&self) {
        // SAFETY: the address is that of a live 32-bit word; waking has no other effect.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.value.as_ptr(),
                libc::FUTEX_WAKE,
                i32::MAX,
            );
        }
    }

    #[cfg(not(loom))]
    fn wait_in_kernel(&self, seen: u32, limit: Duration) {
        let limit = libc::timespec {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos() as libc::c_long,
        };
        // SAFETY: the address is that of a live 32-bit word. The kernel compares it with `seen` under its
        // own lock; a signal, another value or the end of `limit` all return, and the caller looks again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.value.as_ptr(),
                libc::FUTEX_WAIT,
                seen,
                &raw const limit,
            );
        }
    }

    #[cfg(loom)]
    pub fn wake(&self) {
        self.kernel.wake();
    }

    #[cfg(loom)]
    fn wait_in_kernel(&self, seen: u32, _limit: Duration) {
        self.kernel
            .wait(|| self.value.load(Ordering::Acquire) == seen);
    }
}
