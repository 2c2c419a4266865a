//! Entries about operators.

use std::ffi::c_char;
use std::io::Write as _;

use crate::error::{Error, Result};
use crate::router::{self, Router};
use crate::runtime::process;

use super::status::{catch, fail, give_string, quietly, status, text};
use super::types::FlagosOpSlot;

/// `FlagosApi::op_slot`.
///
/// # Safety
/// `qualified_name` is NULL or a NUL-terminated string.
pub(super) unsafe extern "C" fn slot(qualified_name: *const c_char) -> *mut FlagosOpSlot {
    let found = catch(|| {
        if process::is_forked() {
            return Err(Error::forked("op_slot"));
        }
        // SAFETY: the caller's promise.
        router::global().slot(unsafe { text(qualified_name)? })
    });
    match found {
        // The layouts are the same, and every field is an atomic.
        Ok(slot) => std::ptr::from_ref(slot).cast_mut().cast(),
        Err(error) => {
            fail(&error);
            std::ptr::null_mut()
        }
    }
}

/// `FlagosApi::op_record_fallback`.
///
/// # Safety
/// `name` and `reason` are NULL or NUL-terminated strings.
pub(super) unsafe extern "C" fn record_fallback(name: *const c_char, reason: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        record(
            "op_record_fallback",
            name,
            reason,
            Router::record_cpu_fallback,
        )
    }
}

/// `FlagosApi::op_record_decline`.
///
/// # Safety
/// `name` and `reason` are NULL or NUL-terminated strings.
pub(super) unsafe extern "C" fn record_decline(name: *const c_char, reason: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { record("op_record_decline", name, reason, Router::record_fallback) }
}

/// Records a call of an operator `by` the router.
///
/// # Safety
/// `name` and `reason` are NULL or NUL-terminated strings.
unsafe fn record(
    operation: &'static str,
    name: *const c_char,
    reason: *const c_char,
    by: fn(&Router, &str, &str) -> Result<()>,
) -> i32 {
    status(|| {
        if process::is_forked() {
            return Err(Error::forked(operation));
        }
        // SAFETY: the caller's promise.
        let (name, reason) = unsafe { (text(name)?, text(reason)?) };
        by(router::global(), name, reason)
    })
}

/// `FlagosApi::op_log_dispatch`.
///
/// # Safety
/// `name` and `backend` are NULL or NUL-terminated strings.
pub(super) unsafe extern "C" fn log_dispatch(name: *const c_char, backend: *const c_char) {
    quietly(|| {
        // SAFETY: the caller's promise.
        let (name, backend) = unsafe { (text(name)?, text(backend)?) };
        // One write, so that lines of several threads do not mix. Nobody is told when it fails.
        let plan = router::global().published();
        let line = router::dispatch_line(plan.as_deref(), name, backend);
        let _ = std::io::stderr().write_all(line.as_bytes());
        Ok(())
    });
}

/// `FlagosApi::op_blocked_reason`.
///
/// # Safety
/// `name` is NULL or a NUL-terminated string, `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn blocked_reason(name: *const c_char, out: *mut *mut c_char) -> i32 {
    status(|| {
        if process::is_forked() {
            return Err(Error::forked("op_blocked_reason"));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { text(name)? };
        let reason = router::global().blocked_reason(name)?;
        let reason = reason.unwrap_or_else(|| {
            format!("{name} is not blocked any more: the routes have just changed, call it again")
        });
        // SAFETY: the caller's promise.
        unsafe { give_string(out, reason) }
    })
}
