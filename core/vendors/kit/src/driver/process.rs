//! Whether this process has initialised a driver, which works in no child that is forked afterwards.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use flagos_core::error::{Error, Result};

/// What this process has done with a driver.
pub struct Process {
    started: AtomicBool,
    initialized: AtomicBool,
    forked: AtomicBool,
    in_child: extern "C" fn(),
    /// The result of asking to be called in forked children.
    watched: OnceLock<c_int>,
}

impl Process {
    /// Nothing yet. `in_child`, which is called in forked children, calls [`Process::note_fork`].
    #[must_use]
    pub const fn new(in_child: extern "C" fn()) -> Self {
        Self {
            started: AtomicBool::new(false),
            initialized: AtomicBool::new(false),
            forked: AtomicBool::new(false),
            in_child,
            watched: OnceLock::new(),
        }
    }

    /// Marks a forked child. Only touches atomics, so that it may run between fork and exec.
    pub fn note_fork(&self) {
        if self.is_started() {
            self.forked.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the driver was initialised before this process was forked off.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// Whether this process has initialised the driver, or is initialising it.
    pub fn is_started(&self) -> bool {
        self.started.load(Ordering::SeqCst)
    }

    /// Whether this process has initialised the driver with success.
    #[inline]
    pub fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Acquire)
    }

    /// Initialises the driver by `initialize`, unless this is a forked child. `operation` names that in errors.
    pub fn start<T>(
        &self,
        operation: &'static str,
        initialize: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.is_forked() {
            return Err(Error::forked(operation));
        }
        // SAFETY: the function lives as long as the library and only touches atomics.
        let watched = || unsafe { libc::pthread_atfork(None, None, Some(self.in_child)) };
        let code = *self.watched.get_or_init(watched);
        if code != 0 {
            let source = std::io::Error::from_raw_os_error(code);
            return Err(Error::device(operation, "forks cannot be watched").with_source(source));
        }
        let before = self.started.swap(true, Ordering::SeqCst);
        let outcome = initialize();
        match outcome {
            Ok(_) => self.initialized.store(true, Ordering::Release),
            Err(_) => self.started.store(before, Ordering::SeqCst),
        }
        outcome
    }
}
