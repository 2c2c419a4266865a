//! Forking while no thread uses the router.

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

use super::state::Router;

impl Router {
    /// Waits until no thread uses the registry, and locks it until
    /// [`release_after_fork`](Self::release_after_fork). Called right before a fork: the child has none of the
    /// other threads, and would wait for ever for one that held the lock.
    pub fn hold_for_fork(&self) {
        std::mem::forget(self.state.lock());
    }

    /// Releases the lock of `hold_for_fork`, in the parent.
    ///
    /// # Safety
    /// This thread, or the thread that forked it, called `hold_for_fork`, and has not released the lock yet.
    pub unsafe fn release_after_fork(&self) {
        // SAFETY: by the caller's promise, the lock is held and its guard was forgotten.
        unsafe { self.state.force_unlock() }
    }

    /// Releases the lock of `hold_for_fork`, in the child. The lock is written anew, because its state may list
    /// waiting threads, which the child does not have.
    ///
    /// # Safety
    /// The thread that forked this process called `hold_for_fork`; there is no other thread.
    pub unsafe fn release_after_fork_in_child(&self) {
        // SAFETY: by the caller's promise, no other thread can use the lock.
        unsafe {
            let raw = std::ptr::from_ref(self.state.raw()).cast_mut();
            raw.write(RawMutex::INIT);
        }
    }
}
