//! Failures across the table: a status for the caller, the message in a thread-local.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use super::types::FLAGOS_COMM_OK;
use crate::error::catch_panic;
use crate::{Error, ErrorKind, Result};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

pub(super) extern "C" fn last_error() -> *const c_char {
    let message = LAST.try_with(|last| last.borrow().as_ptr());
    message.unwrap_or(c"the thread is ending".as_ptr())
}

/// The status of an outcome. Keeps the message of a failure.
pub(super) fn code(outcome: Result<()>) -> i32 {
    match outcome {
        Ok(()) => FLAGOS_COMM_OK,
        Err(error) => {
            let text = error.to_string().replace('\0', "\u{fffd}");
            let _ = LAST.try_with(|last| last.replace(CString::new(text).unwrap_or_default()));
            error.kind() as i32
        }
    }
}

/// Runs an entry and returns its status.
pub(super) fn status(entry: impl FnOnce() -> Result<()>) -> i32 {
    code(catch_panic(entry))
}

pub(super) fn null(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{what} is NULL"))
}
