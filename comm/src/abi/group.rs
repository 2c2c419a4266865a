//! The table's functions on a group.

use std::ffi::{CString, c_char};
use std::sync::Arc;

use super::call::call;
use super::failure::{code, null, status};
use super::foreign::{ForeignStore, config, text, use_device};
use super::types::{
    FlagosCollective, FlagosCommConfig, FlagosCommGroup, FlagosCommStore, FlagosCommWaiter,
};
use crate::group::{After, QueuedCall, Side};
use crate::{Error, ErrorKind, Group, Result};

/// # Safety
/// `string` is NULL or came from this table and has not been freed.
pub(super) unsafe extern "C" fn string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: strings of this table are made by `CString::into_raw`.
        drop(unsafe { CString::from_raw(string) });
    }
}

/// # Safety
/// Pointers are NULL or valid, strings NULL or NUL-terminated; the store's functions may be called until it is released.
pub(super) unsafe extern "C" fn group_open(
    given: *const FlagosCommConfig,
    store: *const FlagosCommStore,
    out: *mut *mut FlagosCommGroup,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise. The store comes first, so that every failure releases it.
        let store = Arc::new(unsafe { ForeignStore::new(store)? });
        // SAFETY: the caller's promise.
        let given = unsafe { given.as_ref() }.ok_or_else(|| null("the configuration"))?;
        if out.is_null() {
            return Err(null("an output"));
        }
        // SAFETY: the caller's promise.
        let (config, dump) = unsafe { (config(given)?, text(given.dump)) };
        let group = Group::open(config, dump.map(Into::into), store, use_device(given))?;
        // SAFETY: checked above, valid for writing.
        unsafe { out.write(Box::into_raw(Box::new(FlagosCommGroup { group }))) };
        Ok(())
    })
}

/// # Safety
/// `group` is NULL or came from `group_open`, is used by no thread, and not afterwards.
pub(super) unsafe extern "C" fn group_close(group: *mut FlagosCommGroup) {
    status(|| {
        if !group.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(group) });
        }
        Ok(())
    });
}

/// # Safety
/// `group` is NULL or alive.
pub(super) unsafe fn alive<'a>(group: *const FlagosCommGroup) -> Result<&'a Group> {
    // SAFETY: the caller's promise.
    let group = unsafe { group.as_ref() }.ok_or_else(|| null("the group"))?;
    Ok(&group.group)
}

fn side(code: u32) -> Result<Side> {
    match code {
        0 => Ok(Side::Host),
        1 => Ok(Side::Devices),
        other => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("there is no side {other} of a group"),
        )),
    }
}

/// # Safety
/// `group` is NULL or alive.
pub(super) unsafe extern "C" fn host(group: *const FlagosCommGroup) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { alive(group)?.host().map(drop) })
}

/// # Safety
/// `group` is NULL or alive.
pub(super) unsafe extern "C" fn host_is_idle(group: *const FlagosCommGroup) -> i32 {
    // SAFETY: the caller's promise.
    let host = unsafe { alive(group) }.and_then(Group::host);
    host.map_or(0, |host| i32::from(host.is_idle()))
}

/// # Safety
/// `group` is NULL or alive, `given` NULL or valid, as are its lists and buffers.
pub(super) unsafe extern "C" fn host_run(
    group: *const FlagosCommGroup,
    given: *const FlagosCollective,
) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { alive(group)?.host()?.run(&call(given)?) })
}

/// The waiter's context, which belongs to the thread that ends the call.
struct Waiter(FlagosCommWaiter);

// SAFETY: the table asks for a waiter that a thread of the group may be told.
unsafe impl Send for Waiter {}

impl Waiter {
    fn end(self, outcome: Result<Option<usize>>) -> Option<After> {
        let source = outcome.as_ref().ok().copied().flatten();
        let source = source.map_or(-1, |rank| rank as i32);
        let status = code(outcome.map(drop));
        // SAFETY: the adapter's function, called once.
        let callbacks = unsafe { (self.0.ended)(self.0.context, status, source) };
        (callbacks != 0).then(|| Box::new(move || self.run_after()) as After)
    }

    fn run_after(self) {
        // SAFETY: the adapter's function, called once.
        unsafe { (self.0.after)(self.0.context) };
    }
}

/// # Safety
/// As [`host_run`], until the waiter is told; `waiter` is NULL or valid.
pub(super) unsafe extern "C" fn host_queue(
    group: *const FlagosCommGroup,
    given: *const FlagosCollective,
    asynchronous: i32,
    waiter: *const FlagosCommWaiter,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let (host, queued, waiter) = unsafe {
            (
                alive(group)?.host()?,
                QueuedCall::new(&call(given)?),
                waiter.as_ref().ok_or_else(|| null("the waiter"))?,
            )
        };
        let waiter = Waiter(*waiter);
        host.queue(
            queued,
            asynchronous != 0,
            Box::new(move |outcome| waiter.end(outcome)),
        )
    })
}

/// # Safety
/// `group` is NULL or alive, `given` NULL or valid, `number` NULL or valid for writing.
pub(super) unsafe extern "C" fn record_begin(
    group: *const FlagosCommGroup,
    given: *const FlagosCollective,
    asynchronous: i32,
    number: *mut u64,
) -> i32 {
    status(|| {
        if number.is_null() {
            return Err(null("an output"));
        }
        // SAFETY: the caller's promise, and checked above.
        unsafe { number.write(alive(group)?.record(&call(given)?, asynchronous != 0)) };
        Ok(())
    })
}

/// # Safety
/// `group` is NULL or alive.
pub(super) unsafe extern "C" fn record_end(group: *const FlagosCommGroup, number: u64, well: i32) {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { alive(group)? }.recorder().ended(number, well != 0);
        Ok(())
    });
}

/// # Safety
/// `group` is NULL or alive, `why` NULL or a string.
pub(super) unsafe extern "C" fn report(group: *const FlagosCommGroup, why: *const c_char) {
    status(|| {
        // SAFETY: the caller's promise.
        let (group, why) = unsafe { (alive(group)?, text(why)) };
        group.report(why.as_deref().unwrap_or("no reason was given"));
        Ok(())
    });
}

/// # Safety
/// `group` is NULL or alive, `reason` NULL or a string.
pub(super) unsafe extern "C" fn abort(
    group: *const FlagosCommGroup,
    which: u32,
    reason: *const c_char,
) {
    status(|| {
        // SAFETY: the caller's promise.
        let (group, reason) = unsafe { (alive(group)?, text(reason)) };
        group.abort(
            side(which)?,
            reason.as_deref().unwrap_or("no reason was given"),
        );
        Ok(())
    });
}

/// # Safety
/// `group` is NULL or alive.
pub(super) unsafe extern "C" fn async_error(group: *const FlagosCommGroup, which: u32) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { alive(group)? }.async_error(side(which)?))
}

/// # Safety
/// `group` is NULL or alive.
pub(super) unsafe extern "C" fn monitored_barrier(
    group: *const FlagosCommGroup,
    timeout_ms: i64,
    wait_for_all: i32,
) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { alive(group)? }.monitored_barrier(timeout_ms, wait_for_all != 0))
}

/// # Safety
/// `group` is NULL or alive, `out` NULL or valid for writing.
pub(super) unsafe extern "C" fn state_json(
    group: *const FlagosCommGroup,
    out: *mut *mut c_char,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let state = unsafe { alive(group)? }.state().to_string();
        if out.is_null() {
            return Err(null("an output"));
        }
        let state = CString::new(state.replace('\0', "\u{fffd}")).unwrap_or_default();
        // SAFETY: checked above.
        unsafe { out.write(state.into_raw()) };
        Ok(())
    })
}
