//! Functions that a stream calls. They must not call the ACL runtime.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::HostFn;

use super::reporter::Outstanding;

thread_local! {
    static IN_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs work of a stream.
#[inline]
pub(super) fn is_current() -> bool {
    IN_WORK.get()
}

/// Fails in work running on a stream.
#[inline]
pub(super) fn refuse(operation: &'static str) -> Result<()> {
    if !is_current() {
        return Ok(());
    }
    let message = "work running on an Ascend stream cannot call the ACL runtime";
    Err(Error::unsupported(operation, message)
        .with_hint("do it from another thread, or queue an event before the work"))
}

/// A queued call of a function.
pub(super) struct Call {
    pub(super) function: HostFn,
    pub(super) context: *mut c_void,
    /// The count of calls that the reporter's thread has to make, if it makes this one.
    pub(super) reported: Option<Arc<Outstanding>>,
}

/// Makes a queued call, on a thread of the runtime or of the reporter.
///
/// # Safety
/// `call` is a leaked box of [`Call`], which nothing else uses, and its function may be called.
pub(super) unsafe extern "C" fn run(call: *mut c_void) {
    // SAFETY: the caller's promise.
    let call = unsafe { Box::from_raw(call.cast::<Call>()) };
    IN_WORK.set(true);
    // SAFETY: promised by the caller of `Stream::launch`; each call is made once.
    unsafe { (call.function)(call.context) };
    // The thread may do something else next.
    IN_WORK.set(false);
    if let Some(outstanding) = call.reported {
        outstanding.finished();
    }
}
