//! Entries about events. A caller's handle is the address of a box that holds the vendor's event.

use std::ffi::c_void;
use std::sync::Arc;

use crate::error::Result;
use crate::runtime::{Event, process};

use super::status::{device_index, give, null, quietly, status};
use super::streams::stream;

type Boxed = Arc<dyn Event>;

/// The event behind a caller's handle.
///
/// # Safety
/// `event` is NULL or came from [`create`] and is not destroyed during `'a`.
unsafe fn event<'a>(operation: &'static str, event: *mut c_void) -> Result<&'a dyn Event> {
    process::require(operation)?;
    // SAFETY: the caller's promise.
    let event = unsafe { event.cast::<Boxed>().as_ref() };
    event.map(|event| &**event).ok_or_else(|| null("the event"))
}

/// `FlagosApi::event_create`.
///
/// # Safety
/// `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn create(device: i32, timing: i32, out: *mut *mut c_void) -> i32 {
    status(|| {
        if out.is_null() {
            return Err(null("an output of event_create"));
        }
        let vendor = process::require("event_create")?.vendor();
        let event: Boxed = vendor.event(device_index(device)?, timing != 0)?;
        // SAFETY: the caller's promise.
        unsafe { give(out, Box::into_raw(Box::new(event)).cast()) }
    })
}

/// `FlagosApi::event_destroy`.
///
/// # Safety
/// `event` is NULL or came from [`create`] and has not been destroyed.
pub(super) unsafe extern "C" fn destroy(event: *mut c_void) {
    // In a forked child the event is leaked, because its locks may be held for ever.
    if event.is_null() || process::is_forked() {
        return;
    }
    quietly(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(event.cast::<Boxed>()) });
        Ok(())
    });
}

/// `FlagosApi::event_record`.
///
/// # Safety
/// As [`event`].
pub(super) unsafe extern "C" fn record(handle: *mut c_void, device: i32, id: u64) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let event = unsafe { event("event_record", handle)? };
        stream("event_record", device, id)?.record(event)
    })
}

/// `FlagosApi::event_wait`.
///
/// # Safety
/// As [`event`].
pub(super) unsafe extern "C" fn wait(handle: *mut c_void, device: i32, id: u64) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let event = unsafe { event("event_wait", handle)? };
        stream("event_wait", device, id)?.wait(event)
    })
}

/// `FlagosApi::event_query`.
///
/// # Safety
/// As [`event`]; `done` is NULL or valid for writing.
pub(super) unsafe extern "C" fn query(handle: *mut c_void, done: *mut i32) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let over = event("event_query", handle)?.query()?;
            give(done, i32::from(over))
        }
    })
}

/// `FlagosApi::event_sync`.
///
/// # Safety
/// As [`event`].
pub(super) unsafe extern "C" fn sync(handle: *mut c_void) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { event("event_sync", handle)?.sync() })
}

/// `FlagosApi::event_elapsed`.
///
/// # Safety
/// As [`event`] for both; `milliseconds` is NULL or valid for writing.
pub(super) unsafe extern "C" fn elapsed(
    start: *mut c_void,
    end: *mut c_void,
    milliseconds: *mut f64,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let end = event("event_elapsed", end)?;
            let elapsed = event("event_elapsed", start)?.elapsed_ms(end)?;
            give(milliseconds, elapsed)
        }
    })
}
