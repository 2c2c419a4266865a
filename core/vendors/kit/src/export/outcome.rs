//! Outcomes as statuses, with the text of the last failure.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use flagos_core::descriptions::Description;
use flagos_core::error::{Error, ErrorKind, Result, panic_text};

use flagos_core::vendors::library::*;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// `FlagosVendor::last_error`, and that of the kernels of the same library.
///
/// # Safety
/// None: the text is NULL, or valid until this thread's next call.
pub unsafe extern "C" fn last_error() -> *const c_char {
    // A thread that is ending has no text any more.
    let text = LAST_ERROR.try_with(|text| text.borrow().as_ptr());
    text.unwrap_or(std::ptr::null())
}

/// Runs `work` and returns its status; [`last_error`] tells the text. A panic is a failure too.
pub fn status(vendor: &Description, work: impl FnOnce() -> Result<()>) -> i32 {
    match catch(work) {
        Ok(()) => FLAGOS_VENDOR_OK,
        Err(error) => failed(vendor, &error),
    }
}

/// [`status`] of work whose value goes to `out`.
///
/// # Safety
/// `out` is a valid output.
pub(super) unsafe fn give<T>(
    vendor: &Description,
    out: *mut T,
    work: impl FnOnce() -> Result<T>,
) -> i32 {
    status(vendor, || {
        let value = work()?;
        // SAFETY: the caller's promise.
        unsafe { out.write(value) };
        Ok(())
    })
}

/// Runs `work` for a function without a status. A panic counts as `fallback`.
pub(super) fn answer<T>(fallback: T, work: impl FnOnce() -> T) -> T {
    catch(|| Ok(work())).unwrap_or(fallback)
}

fn catch<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = format!("panic: {}", panic_text(&*panic));
        Err(Error::internal("vendor", text))
    })
}

/// The status of an error, whose text is kept for this thread.
#[cold]
fn failed(vendor: &Description, error: &Error) -> i32 {
    let text = match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    let text = text.replace('\0', "\u{fffd}");
    let code = if error.kind() == ErrorKind::Device && vendor.means_lost(&text) {
        FLAGOS_VENDOR_DEVICE_LOST
    } else {
        status_of(error.kind())
    };
    keep(&text);
    code
}

/// The status of what the device or its driver refuses, for this reason.
#[cold]
pub(super) fn refused(reason: &str) -> i32 {
    keep(&reason.replace('\0', "\u{fffd}"));
    FLAGOS_VENDOR_DEVICE
}

/// Keeps the text, which has no NUL inside, for this thread.
fn keep(text: &str) {
    if let Ok(text) = CString::new(text) {
        let _ = LAST_ERROR.try_with(|last| last.replace(text));
    }
}
