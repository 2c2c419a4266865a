//! Tests that need no initialised process. The others are in `tests/c_table.rs`.

use std::ffi::CStr;

use super::status::{catch, give, last_error, quietly, status};
use super::*;
use crate::error::{Error, ErrorKind};

fn message() -> String {
    // SAFETY: never NULL, and this thread makes no failing call meanwhile.
    unsafe { CStr::from_ptr(last_error()) }
        .to_string_lossy()
        .into_owned()
}

#[test]
fn a_panic_becomes_a_status() {
    let code = status(|| panic!("with {}", "a message"));
    assert_eq!(code, FLAGOS_INTERNAL);
    assert!(message().contains("with a message"), "{}", message());
    quietly(|| panic!("nobody is told"));
    let error = catch::<()>(|| std::panic::panic_any(7)).expect_err("a panic");
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn statuses_are_the_kinds() {
    for (kind, code) in ErrorKind::ALL.into_iter().zip([
        FLAGOS_INVALID_ARGUMENT,
        FLAGOS_CONFIG,
        FLAGOS_OUT_OF_MEMORY,
        FLAGOS_DEVICE,
        FLAGOS_NOT_INITIALIZED,
        FLAGOS_UNSUPPORTED,
        FLAGOS_FORKED,
        FLAGOS_INTERNAL,
    ]) {
        assert_eq!(status(|| Err(Error::new(kind, "test", "failed"))), code);
    }
    assert_eq!(status(|| Ok(())), FLAGOS_OK);
}

#[test]
fn messages_are_whole_and_per_thread() {
    let fail = |text: &str| status(|| Err(Error::device("test", text).with_detail("a\ntable")));
    fail("zero \0 inside");
    assert_eq!(message(), "test: zero \\u{0} inside\na\ntable");
    std::thread::spawn(move || fail("elsewhere"))
        .join()
        .expect("no panic");
    assert!(message().starts_with("test: zero"));
}

#[test]
fn null_is_refused() {
    // SAFETY: NULL is allowed.
    let code = status(|| unsafe { give(std::ptr::null_mut(), 1) });
    assert_eq!(code, FLAGOS_INVALID_ARGUMENT);
}
