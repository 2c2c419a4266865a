//! Functions that a stream calls, of vendors whose library forbids them to call it.

use std::cell::Cell;
use std::ffi::c_void;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::HostFn;

thread_local! {
    static IN_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs work of a stream.
#[inline]
pub fn is_current() -> bool {
    IN_WORK.get()
}

/// Fails in work running on a stream of a vendor's `family`, which cannot call `library`.
#[inline]
pub fn refuse(operation: &'static str, family: &str, library: &str) -> Result<()> {
    if !is_current() {
        return Ok(());
    }
    Err(refused(operation, family, library))
}

#[cold]
fn refused(operation: &'static str, family: &str, library: &str) -> Error {
    let message = format!("work running on a stream of {family} cannot call {library}");
    Error::unsupported(operation, message)
        .with_hint("do it from another thread, or queue an event before the work")
}

/// A call of a function by a stream.
pub struct Call {
    function: HostFn,
    context: *mut c_void,
}

impl Call {
    /// A call that a stream is to make once.
    pub fn new(function: HostFn, context: *mut c_void) -> Self {
        Self { function, context }
    }

    /// Makes the call, on a thread of the driver.
    ///
    /// # Safety
    /// The function may be called.
    pub unsafe fn make(self) {
        IN_WORK.set(true);
        // SAFETY: the caller's promise.
        unsafe { (self.function)(self.context) };
        // The thread is the driver's, and may do something else next.
        IN_WORK.set(false);
    }
}

/// Queues a call by `queue`, which gets what the driver is to call: a function and its argument.
pub fn queue(
    function: HostFn,
    context: *mut c_void,
    queue: impl FnOnce(HostFn, *mut c_void) -> Result<()>,
) -> Result<()> {
    let call = Box::into_raw(Box::new(Call::new(function, context)));
    let queued = queue(run, call.cast());
    if queued.is_err() {
        // SAFETY: the call will not be made, so the box is still ours.
        drop(unsafe { Box::from_raw(call) });
    }
    queued
}

/// # Safety
/// `call` is a leaked box of [`Call`], which nothing else uses, and its function may be called.
unsafe extern "C" fn run(call: *mut c_void) {
    // SAFETY: promised by the caller of `Stream::launch`; the driver makes each call once.
    unsafe { Box::from_raw(call.cast::<Call>()).make() };
}
