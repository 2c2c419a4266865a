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

/// Fails in work running on a stream. `library` is what it cannot call.
#[inline]
pub fn refuse(operation: &'static str, library: &str) -> Result<()> {
    if !is_current() {
        return Ok(());
    }
    let message = format!("work running on a stream of {library} cannot call {library}");
    Err(Error::unsupported(operation, message)
        .with_hint("do it from another thread, or queue an event before the work"))
}

/// A queued call of a function.
pub struct Call {
    /// The function.
    pub function: HostFn,
    /// Its argument.
    pub context: *mut c_void,
}

/// Makes a queued call, on a thread of the driver.
///
/// # Safety
/// `call` is a leaked box of [`Call`], which nothing else uses, and its function may be called.
pub unsafe extern "C" fn run(call: *mut c_void) {
    // SAFETY: the caller's promise.
    let call = unsafe { Box::from_raw(call.cast::<Call>()) };
    IN_WORK.set(true);
    // SAFETY: promised by the caller of `Stream::launch`; the driver makes each call once.
    unsafe { (call.function)(call.context) };
    // The thread is the driver's, and may do something else next.
    IN_WORK.set(false);
}
