//! What the library reports through `tracing`, as lines of the host's log.

use std::cell::Cell;
use std::ffi::{CString, c_char};
use std::fmt::{Debug, Write as _};
use std::mem::{offset_of, size_of};

use flagos_core::vendors::library::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

type Log = unsafe extern "C" fn(level: i32, line: *const c_char);

/// Sends the library's own events to the host's log from now on.
///
/// # Safety
/// `host` is NULL or points at as many bytes as its `struct_size` says.
pub unsafe fn follow(host: *const FlagosVendorHost) {
    const NEEDED: usize = offset_of!(FlagosVendorHost, log) + size_of::<Option<Log>>();
    // SAFETY: the caller's promise.
    let size = unsafe { host.cast::<usize>().as_ref() };
    let log = size.filter(|size| **size >= NEEDED).and_then(|_| {
        // SAFETY: the member is there.
        unsafe { (*host).log }
    });
    if let Some(log) = log {
        // A second call finds the first one's.
        let _ = tracing::subscriber::set_global_default(Lines(log));
    }
}

/// The subscriber. Spans have no meaning here.
struct Lines(Log);

thread_local! {
    /// Whether the thread is in the host's log, which may be of the same program.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &Event<'_>) {
        if BUSY.try_with(|busy| busy.replace(true)) != Ok(false) {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        if let Ok(line) = CString::new(line.text().replace('\0', "\u{fffd}")) {
            // SAFETY: a text that lives during the call.
            unsafe { (self.0)(level(*event.metadata().level()), line.as_ptr()) };
        }
        let _ = BUSY.try_with(|busy| busy.set(false));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn level(level: Level) -> i32 {
    match level {
        Level::ERROR => FLAGOS_VENDOR_LOG_ERROR,
        Level::WARN => FLAGOS_VENDOR_LOG_WARNING,
        Level::INFO => FLAGOS_VENDOR_LOG_INFO,
        _ => FLAGOS_VENDOR_LOG_DEBUG,
    }
}

/// An event as a line: its message, and then its fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn text(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::sync::Mutex;

    use super::*;

    static SEEN: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn note(level: i32, line: *const c_char) {
        // SAFETY: a text that ends with NUL.
        let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
        SEEN.lock()
            .expect("not poisoned")
            .push((level, line.into_owned()));
        // As of a host of the same program.
        tracing::error!("heard");
    }

    #[test]
    fn events_are_lines_with_their_fields() {
        tracing::subscriber::with_default(Lines(note), || {
            let error = "gone\0";
            tracing::warn!(device = 3, %error, "no peer access");
            tracing::trace!("not this");
            tracing::debug!("that");
        });
        let seen = SEEN.lock().expect("not poisoned").clone();
        let expected = [
            (
                FLAGOS_VENDOR_LOG_WARNING,
                "no peer access device=3 error=gone\u{fffd}".to_owned(),
            ),
            (FLAGOS_VENDOR_LOG_DEBUG, "that".to_owned()),
        ];
        assert_eq!(seen, expected);
    }
}
