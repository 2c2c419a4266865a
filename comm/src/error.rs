//! The one error type of this crate.

use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the classes a caller can act upon. The discriminants are the C table's statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorKind {
    /// The caller passed something that cannot be served.
    InvalidArgument = 1,
    /// The engine cannot do this; nothing has been sent.
    Unsupported = 2,
    /// A rank did not come within the timeout.
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

/// A failure: its kind, one line that says what happened and what to do, and the rank it is due to.
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

    /// Names the rank that caused it.
    #[must_use]
    pub fn due_to(mut self, rank: usize) -> Self {
        self.culprit = Some(rank);
        self
    }

    /// Puts what was being done before the message.
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

    /// The rank it is due to, when that is known.
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

/// Runs `work`; its panic becomes an error.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(defect(&format!("panic: {}", text.unwrap_or("unknown"))))
    })
}

/// A failure that only a defect of flagos explains.
pub(crate) fn defect(what: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("{what}; this is a defect of flagos, please report it"),
    )
}

/// The failed system call `what`, with `errno`.
pub(crate) fn system(what: &str) -> Error {
    Error::new(
        ErrorKind::System,
        format!("{what}: {}", std::io::Error::last_os_error()),
    )
}
