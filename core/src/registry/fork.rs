//! A fork that finds no thread inside the engine.

use super::engine::Engine;

impl Engine {
    /// Waits until no thread changes or reads the registry, and keeps it so until
    /// [`release_after_fork`](Self::release_after_fork). Called right before a fork, whose child
    /// has none of the other threads, and would wait for them for ever.
    pub fn hold_for_fork(&self) {
        std::mem::forget(self.state.lock());
    }

    /// Ends what `hold_for_fork` began, in the parent and in the child.
    ///
    /// # Safety
    /// This thread, or the one that forked it, called `hold_for_fork`, and has not ended it yet.
    pub unsafe fn release_after_fork(&self) {
        // SAFETY: the guard was forgotten while the lock was held, says the caller.
        unsafe { self.state.force_unlock() }
    }
}
