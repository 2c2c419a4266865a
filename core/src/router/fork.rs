//! A fork that finds no thread inside the router.

use parking_lot::lock_api::RawMutex as _;
use parking_lot::RawMutex;

use super::state::Router;

impl Router {
    /// Waits until no thread changes or reads the registry, and keeps it so until
    /// [`release_after_fork`](Self::release_after_fork). Called right before a fork, whose child
    /// has none of the other threads, and would wait for them for ever.
    pub fn hold_for_fork(&self) {
        std::mem::forget(self.state.lock());
    }

    /// Ends what `hold_for_fork` began, in the parent.
    ///
    /// # Safety
    /// This thread, or the one that forked it, called `hold_for_fork`, and has not ended it yet.
    pub unsafe fn release_after_fork(&self) {
        // SAFETY: the guard was forgotten while the lock was held, says the caller.
        unsafe { self.state.force_unlock() }
    }

    /// Ends what `hold_for_fork` began, in the child: nobody waits for the lock there, although it
    /// may look so.
    ///
    /// # Safety
    /// The thread that forked this process called `hold_for_fork`; there is no other thread.
    pub unsafe fn release_after_fork_in_child(&self) {
        // SAFETY: nobody else can look at the lock, says the caller.
        unsafe {
            let raw = std::ptr::from_ref(self.state.raw()).cast_mut();
            raw.write(RawMutex::INIT);
        }
    }
}
