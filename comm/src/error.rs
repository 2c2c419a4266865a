//! The one error type of this crate.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The classes of failures, by what a caller can do about them. The discriminants are the C table's statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorKind {
    /// The caller passed something that cannot be served.
    InvalidArgument = 1,
    /// The engine does not support the call, and has sent nothing.
    Unsupported = 2,
    /// A rank did not make its call within the time-out.
    Timeout = 3,
    /// A rank's process has ended.
    PeerLost = 4,
    /// Ranks called different collectives, or with different arguments.
    Mismatch = 5,
    /// The communicator was aborted, here or by another rank.
    Aborted = 6,
    /// A vendor's library failed.
    Library = 7,
    /// The operating system or the rendezvous store failed.
    System = 8,
    /// A defect of flagos.
    Internal = 9,
}

/// A failure: its kind, one line with the reason and the next step, and the rank that caused it.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    culprit: Option<usize>,
}

impl Error {
    /// An error of `kind`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            culprit: None,
        }
    }

    /// The error, with the rank that caused it.
    #[must_use]
    pub fn due_to(mut self, rank: usize) -> Self {
        self.culprit = Some(rank);
        self
    }

    /// The error, with `what` was being done before the message.
    #[must_use]
    pub fn during(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The rank that caused the failure, if it is known.
    #[must_use]
    pub fn culprit(&self) -> Option<usize> {
        self.culprit
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Runs `work`. A panic becomes an error.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(defect(&format!("panic: {}", text.unwrap_or("unknown"))))
    })
}

/// The error for a failure that only a defect of flagos explains.
pub(crate) fn defect(what: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("{what}; this is a defect of flagos, please report it"),
    )
}

/// The error of the failed system call `what`, with `errno`.
pub(crate) fn system(what: &str) -> Error {
    Error::new(
        ErrorKind::System,
        format!("{what}: {}", std::io::Error::last_os_error()),
    )
}
