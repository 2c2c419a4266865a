//! The one error type of this crate.
//!
//! An [`Error`] names the kind of failure, the operation that failed, the reason, and the next step.
//! `Display` is a single line fit for a log or an exception; `Debug` and [`Error::report`] add the
//! multi-line detail (a memory table, a plan difference) when there is one.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The classes of failures, by what a caller can do about them.
///
/// The discriminants are the status codes of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed something that cannot be served: fix the call.
    InvalidArgument = 1,
    /// A configuration file, an environment variable or a route is wrong: fix the configuration.
    Config = 2,
    /// The device has no memory left for the request.
    OutOfMemory = 3,
    /// The device or its driver reported a failure.
    Device = 4,
    /// The runtime has not been initialised yet.
    NotInitialized = 5,
    /// The operation is not supported here, and has changed nothing.
    Unsupported = 6,
    /// The process is a forked child of one that had already initialised flagos.
    Forked = 7,
    /// A defect in flagos itself, for example a panic caught at the C boundary.
    Internal = 8,
}

impl ErrorKind {
    /// Every kind, in the order of the status codes.
    pub const ALL: [Self; 8] = [
        Self::InvalidArgument,
        Self::Config,
        Self::OutOfMemory,
        Self::Device,
        Self::NotInitialized,
        Self::Unsupported,
        Self::Forked,
        Self::Internal,
    ];

    /// The status code the C table returns for this kind (never 0, which means success).
    #[must_use]
    pub const fn status(self) -> i32 {
        self as i32
    }

    /// The kind behind a non-zero status code of the C table.
    #[must_use]
    pub fn from_status(status: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.status() == status)
    }

    /// A stable, human-readable name: `invalid argument`, `configuration`, ...
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid argument",
            Self::Config => "configuration",
            Self::OutOfMemory => "out of memory",
            Self::Device => "device",
            Self::NotInitialized => "not initialized",
            Self::Unsupported => "unsupported",
            Self::Forked => "forked",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure: kind, operation, message, context, and what to do next.
///
/// Cloning is cheap, so that a sticky failure can be reported more than once.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    operation: Cow<'static, str>,
    message: String,
    context: Vec<(&'static str, String)>,
    hint: Option<String>,
    detail: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The text of a panic that was caught.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("unknown")
}

impl Error {
    /// An error of `kind` raised by `operation`, for example `mem_alloc` or `flagos.toml`.
    pub fn new(
        kind: ErrorKind,
        operation: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self(Arc::new(Inner {
            kind,
            operation: operation.into(),
            message: message.into(),
            context: Vec::new(),
            hint: None,
            detail: None,
            source: None,
        }))
    }

    /// [`ErrorKind::InvalidArgument`].
    pub fn invalid_argument(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, op, message)
    }

    /// [`ErrorKind::Config`].
    pub fn config(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, op, message)
    }

    /// [`ErrorKind::OutOfMemory`].
    pub fn out_of_memory(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::OutOfMemory, op, message)
    }

    /// [`ErrorKind::Device`].
    pub fn device(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Device, op, message)
    }

    /// [`ErrorKind::NotInitialized`].
    pub fn not_initialized(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotInitialized, op, message)
    }

    /// [`ErrorKind::Unsupported`].
    pub fn unsupported(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, op, message)
    }

    /// [`ErrorKind::Forked`], whose message is always the same.
    pub fn forked(op: impl Into<Cow<'static, str>>) -> Self {
        Self::new(
            ErrorKind::Forked,
            op,
            "flagos cannot be used in a forked child",
        )
        .with_hint("use the 'spawn' start method")
    }

    /// [`ErrorKind::Internal`].
    pub fn internal(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, op, message)
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds a `key: value` shown after the message, such as `device: 0` or `at: flagos.toml:3`.
    #[must_use]
    pub fn with_context(self, key: &'static str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        self.edit(|inner| inner.context.push((key, value)))
    }

    /// Says what to do next; shown last on the line.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        self.edit(|inner| inner.hint = Some(hint))
    }

    /// Attaches text of several lines, left out of `Display`, shown by [`Error::report`].
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        self.edit(|inner| inner.detail = Some(detail))
    }

    /// Attaches the underlying error.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        let source: Arc<dyn std::error::Error + Send + Sync> = Arc::new(source);
        self.edit(|inner| inner.source = Some(source))
    }

    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// The reason of the failure, without operation, context and hint.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The value added under `key`, if any.
    #[must_use]
    pub fn context(&self, key: &str) -> Option<&str> {
        let found = self.0.context.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// The next step, if the error has one.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The multi-line part, if there is one.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The single line of `Display`, followed by the detail on lines of its own.
    #[must_use]
    pub fn report(&self) -> String {
        match self.detail() {
            Some(detail) => format!("{self}\n{}", visible(detail.trim_end())),
            None => self.to_string(),
        }
    }
}

/// `text` with escapes such as `\u{1b}` for control characters, but for ends of lines and tabs.
///
/// Names and messages come from files, libraries and drivers, and a terminal obeys what they have in them.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Writes `text` on one line, even when a path or a driver's message in it has several.
fn write_single_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for (index, line) in text.lines().map(str::trim_end).enumerate() {
        if index > 0 {
            f.write_str(" ")?;
        }
        f.write_str(&visible(line))?;
    }
    Ok(())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write_single_line(f, &inner.operation)?;
        f.write_str(": ")?;
        write_single_line(f, &inner.message)?;
        if !inner.context.is_empty() {
            f.write_str(" (")?;
            for (index, (key, value)) in inner.context.iter().enumerate() {
                if index > 0 {
                    f.write_str(", ")?;
                }
                write!(f, "{key}: ")?;
                write_single_line(f, value)?;
            }
            f.write_str(")")?;
        }
        if let Some(hint) = &inner.hint {
            f.write_str("; ")?;
            write_single_line(f, hint)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        writeln!(f, "{} error in {}", inner.kind, visible(&inner.operation))?;
        write!(f, "  message: {}", visible(&inner.message))?;
        for (key, value) in &inner.context {
            write!(f, "\n  {key}: {}", visible(value))?;
        }
        if let Some(hint) = &inner.hint {
            write!(f, "\n  next: {}", visible(hint))?;
        }
        if let Some(source) = &inner.source {
            write!(f, "\n  caused by: {}", visible(&source.to_string()))?;
        }
        if let Some(detail) = &inner.detail {
            write!(f, "\n{}", visible(detail))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_one_line_and_ends_with_what_to_do() {
        let error = Error::config("flagos.toml", "unknown key\n`polcy`")
            .with_context("at", "flagos.toml:3")
            .with_hint("did you mean `policy`?")
            .with_detail("line one\nline two\n");
        assert_eq!(
            error.to_string(),
            "flagos.toml: unknown key `polcy` (at: flagos.toml:3); did you mean `policy`?"
        );
        assert!(error.report().ends_with("line one\nline two"));
    }

    #[test]
    fn debug_names_kind_context_and_cause() {
        let cause = std::io::Error::other("disk on fire");
        let error = Error::device("copy", "the copy failed")
            .with_context("device", 0)
            .with_source(cause);
        let debug = format!("{error:?}");
        assert_eq!(
            debug,
            "device error in copy\n  message: the copy failed\n  device: 0\n  caused by: disk on fire"
        );
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn no_part_of_an_error_reaches_a_terminal_as_a_control_character() {
        let evil = "a\u{1b}]52;c;aGk=\u{7}\r\u{9b}b";
        let error = Error::config(evil, evil)
            .with_context("at", evil)
            .with_hint(evil)
            .with_source(std::io::Error::other(evil))
            .with_detail(format!("one\n{evil}\ttwo"));
        for text in [error.to_string(), error.report(), format!("{error:?}")] {
            let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
            assert!(!text.contains(control), "{text:?}");
            assert!(
                text.contains("a\\u{1b}]52;c;aGk=\\u{7}\\r\\u{9b}b"),
                "{text}"
            );
        }
        assert!(matches!(visible("plain\ttext\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn status_codes_are_those_of_the_c_table() {
        for (index, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.status(), index as i32 + 1);
            assert_eq!(ErrorKind::from_status(kind.status()), Some(kind));
        }
        assert_eq!(ErrorKind::from_status(0), None);
    }

    #[test]
    fn an_edited_clone_leaves_the_original_alone() {
        let first = Error::forked("mem_alloc");
        let second = first.clone().with_context("device", 1);
        assert_eq!(first.context("device"), None);
        assert_eq!(second.context("device"), Some("1"));
        assert_eq!(
            first.to_string(),
            "mem_alloc: flagos cannot be used in a forked child; use the 'spawn' start method"
        );
    }
}
