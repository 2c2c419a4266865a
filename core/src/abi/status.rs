//! The conversion of results into statuses and messages, and of arguments from C.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result, panic_text};

use super::types::FLAGOS_OK;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// `FlagosApi::last_error`.
pub(super) extern "C" fn last_error() -> *const c_char {
    // A thread that is ending has no message any more.
    let message = LAST_ERROR.try_with(|message| message.borrow().as_ptr());
    message.unwrap_or(c"the thread is ending".as_ptr())
}

/// `FlagosApi::string_free`.
///
/// # Safety
/// `string` is NULL or came from this table and has not been freed.
pub(super) unsafe extern "C" fn string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: strings of this table are made by `CString::into_raw`, in `give_string`.
        drop(unsafe { CString::from_raw(string) });
    }
}

/// Runs an entry of the table; a panic becomes an internal error.
#[inline]
pub(super) fn catch<T>(entry: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(entry)) {
        Ok(outcome) => outcome,
        Err(panic) => Err(panicked(&*panic)),
    }
}

/// Runs an entry that returns a status.
#[inline]
pub(super) fn status(entry: impl FnOnce() -> Result<()>) -> i32 {
    match catch(entry) {
        Ok(()) => FLAGOS_OK,
        Err(error) => fail(&error),
    }
}

/// Runs an entry that can report a failure only to the log.
#[inline]
pub(super) fn quietly(entry: impl FnOnce() -> Result<()>) {
    if let Err(error) = catch(entry) {
        fail(&error);
        log(&error);
    }
}

#[cold]
fn log(error: &Error) {
    // A panic of the log's subscriber must not cross the boundary either.
    let logged = catch_unwind(AssertUnwindSafe(
        || tracing::error!(%error, "a call failed"),
    ));
    drop(logged);
}

/// Keeps the message for this thread and returns the status.
#[cold]
pub(super) fn fail(error: &Error) -> i32 {
    let message = error.report().replace('\0', "\u{fffd}");
    if let Ok(message) = CString::new(message) {
        let _ = LAST_ERROR.try_with(|last| last.replace(message));
    }
    error.kind().status()
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::internal("flagos", format!("panic: {}", panic_text(panic)))
        .with_hint("this is a defect of flagos, please report it")
}

/// Writes `value` to a pointer a caller gave.
///
/// # Safety
/// `out` is NULL or valid for writing a `T`.
#[inline]
pub(super) unsafe fn give<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(null("an output"));
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}

/// Hands a string to a caller, to be freed with [`string_free`].
///
/// # Safety
/// As [`give`].
pub(super) unsafe fn give_string(out: *mut *mut c_char, text: String) -> Result<()> {
    if out.is_null() {
        return Err(null("an output"));
    }
    let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // SAFETY: the caller's promise.
    unsafe { give(out, text.into_raw()) }
}

/// The text a caller passed.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that lives for `'a`.
pub(super) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(null("a name"));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| {
        Error::invalid_argument("flagos", "a name is not UTF-8").with_source(error)
    })
}

/// The device a caller named.
#[inline]
pub(super) fn device_index(device: i32) -> Result<usize> {
    usize::try_from(device).map_err(|_| {
        Error::invalid_argument("device", format!("{device} is not the index of a device"))
            .with_hint("devices are numbered from 0")
    })
}

/// The error for a NULL that is not allowed.
#[cold]
pub(super) fn null(what: &str) -> Error {
    Error::invalid_argument("flagos", format!("{what} is NULL"))
}
