//! The one runtime of the process, and its end in a forked child.
//!
//! A child inherits the memory of its parent but none of its threads: locks may be held for ever and
//! streams no longer run. So a child of a process that had initialised gets `Forked` from every call,
//! and giving memory back does nothing. Only the table of live blocks still answers there, because a
//! caller has to know whether an address is one of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};

use super::Runtime;
use super::live::LiveBlocks;
use super::sync::AtomicU64;

/// The runtime; null until it is initialised, and again in a forked child.
static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());
/// Whether this is a forked child of a process that had initialised the runtime, or was initialising it.
static FORKED: AtomicBool = AtomicBool::new(false);
/// Whether some thread is initialising.
static STARTING: AtomicBool = AtomicBool::new(false);
static START: Mutex<()> = Mutex::new(());

/// The runtime, if this process has initialised one. One load.
#[inline]
pub fn get() -> Option<&'static Runtime> {
    let runtime = RUNTIME.load(Ordering::Acquire);
    // SAFETY: the pointer is null or was leaked by `start`, and is never freed.
    unsafe { runtime.as_ref() }
}

/// The runtime, or why there is none.
#[inline]
pub fn require(operation: &'static str) -> Result<&'static Runtime> {
    get().ok_or_else(|| why_none(operation))
}

#[cold]
fn why_none(operation: &'static str) -> Error {
    if is_forked() {
        return Error::forked(operation);
    }
    Error::not_initialized(operation, "flagos has not been initialised")
        .with_hint("call init first and check its status")
}

/// The live blocks that callers name by their addresses.
#[inline]
pub fn live() -> &'static LiveBlocks {
    static LIVE: LiveBlocks = LiveBlocks::new();
    &LIVE
}

/// The count of unfinished work, which the vendor keeps once it is opened. The count exists before the
/// runtime, so that an adapter may keep its address from the start.
pub fn pending() -> &'static AtomicU64 {
    static PENDING: OnceLock<AtomicU64> = OnceLock::new();
    PENDING.get_or_init(|| AtomicU64::new(0))
}

/// Whether this is a forked child that cannot use the runtime.
#[inline]
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Initialises the runtime with `make`, unless that has been done. After a failure the next call
/// tries again. `make` must not call `start`.
pub fn start(make: impl FnOnce() -> Result<Runtime>) -> Result<&'static Runtime> {
    if let Some(runtime) = get() {
        return Ok(runtime);
    }
    // Checked before taking the lock, which in a forked child a thread of the parent may hold for ever.
    if is_forked() {
        return Err(Error::forked("init"));
    }
    let _one_at_a_time = START.lock();
    if let Some(runtime) = get() {
        return Ok(runtime);
    }
    watch_forks()?;
    let _starting = Starting::begin();
    let runtime: &'static Runtime = Box::leak(Box::new(make()?));
    RUNTIME.store(std::ptr::from_ref(runtime).cast_mut(), Ordering::Release);
    Ok(runtime)
}

/// Sets [`STARTING`] for as long as it lives, panics included.
struct Starting;

impl Starting {
    fn begin() -> Self {
        STARTING.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        STARTING.store(false, Ordering::SeqCst);
    }
}

fn watch_forks() -> Result<()> {
    static REGISTERED: OnceLock<i32> = OnceLock::new();
    // SAFETY: an `extern "C"` function that lives as long as the library. In the child only atomics are touched, as is fit
    // between fork and exec.
    let code = *REGISTERED
        .get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) });
    if code == 0 {
        return Ok(());
    }
    let source = std::io::Error::from_raw_os_error(code);
    Err(Error::device("init", "forks cannot be watched").with_source(source))
}

extern "C" fn in_forked_child() {
    let runtime = RUNTIME.swap(std::ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: as in `get`.
    if let Some(runtime) = unsafe { runtime.as_ref() } {
        runtime.vendor().after_fork_in_child();
        FORKED.store(true, Ordering::SeqCst);
    } else if STARTING.load(Ordering::SeqCst) {
        FORKED.store(true, Ordering::SeqCst);
    }
}
