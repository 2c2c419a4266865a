//! Configuration files: where they are read from, and how an error names a line.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::selector::SelectorError;
use super::source::Source;
use crate::{Error, Result};

/// Where configuration files are read from. The disk, or memory in tests.
pub trait Files: Send + Sync {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The text of a file that nobody named: it lay where it was looked for.
    fn read_found(&self, path: &Path) -> io::Result<String> {
        self.read(path)
    }

    /// Whether a file exists.
    fn exists(&self, path: &Path) -> bool;

    /// A path equal for two names of one file, so that an include cycle is seen.
    fn identity(&self, path: &Path) -> PathBuf {
        path.components().fold(PathBuf::new(), |mut path, part| {
            match part {
                Component::CurDir => {}
                Component::ParentDir if path.file_name().is_some() => {
                    path.pop();
                }
                part => path.push(part),
            }
            path
        })
    }
}

/// Why a file that can be opened is not read. Whoever may write it decides what this process runs.
#[derive(Debug)]
enum Refused {
    /// A pipe, a device, a folder: reading it may wait for ever, or never end.
    NotRegular,
    /// Every user may write to it.
    WorldWritable,
    /// It was found, and belongs to this user.
    OwnedBy(u32),
    /// Longer than [`LONGEST`].
    TooLong(u64),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegular => f.write_str("it is not a regular file"),
            Self::WorldWritable => f.write_str("every user may write to it"),
            Self::OwnedBy(user) => write!(f, "it belongs to another user (uid {user})"),
            Self::TooLong(length) => {
                write!(f, "it has {length} bytes, more than {LONGEST}")
            }
        }
    }
}

impl std::error::Error for Refused {}

#[cfg(unix)]
const WRITABLE_BY_ALL: u32 = 0o002;

/// The longest configuration that is read, in bytes; the plan of every operator of torch has 0.2 MB.
const LONGEST: u64 = 16 << 20;

/// What to do about a file that could not be read; `otherwise` when it was not refused for what it is.
pub(crate) fn remedy(error: &io::Error, path: &Path, otherwise: &str) -> String {
    let refused = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Refused>());
    let path = path.display();
    match refused {
        Some(Refused::WorldWritable) => format!("check what it says, then `chmod o-w {path}`"),
        Some(Refused::OwnedBy(_)) => {
            format!("check what it says, then name it: FLAGOS_CONFIG={path}; or start elsewhere")
        }
        _ => otherwise.to_owned(),
    }
}

/// The file system. What is no regular file is refused, and what every user may write to; of the files
/// that are found, also those of other users than this one and root.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        read(path, false)
    }

    fn read_found(&self, path: &Path) -> io::Result<String> {
        read(path, true)
    }

    fn exists(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }
}

/// Asks what has been opened, which nobody can put another file in the place of. Opening does not wait:
/// a pipe without a writer is there at once.
fn read(path: &Path, own: bool) -> io::Result<String> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    let file = options.open(path)?;
    let about = file.metadata()?;
    let refuse = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !about.is_file() {
        return refuse(Refused::NotRegular);
    }
    if about.len() > LONGEST {
        return refuse(Refused::TooLong(about.len()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        if about.mode() & WRITABLE_BY_ALL != 0 {
            return refuse(Refused::WorldWritable);
        }
        if own && ![0, effective_user()].contains(&about.uid()) {
            return refuse(Refused::OwnedBy(about.uid()));
        }
    }
    let mut text = String::new();
    // What grows while it is read ends here all the same.
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(unix)]
fn effective_user() -> u32 {
    // SAFETY: geteuid takes nothing and always succeeds.
    unsafe { libc::geteuid() }
}

/// Files held in memory.
impl Files for std::collections::BTreeMap<PathBuf, String> {
    fn read(&self, path: &Path) -> io::Result<String> {
        match self.get(&self.identity(path)) {
            Some(text) => Ok(text.clone()),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        self.contains_key(&self.identity(path))
    }
}

/// The longest chain of includes, and the most files one configuration may include.
const MAX_DEPTH: usize = 16;
const MAX_FILES: usize = 256;

/// Reads a configuration file and what it includes, refusing cycles.
pub(crate) struct Includes<'f> {
    files: &'f dyn Files,
    /// Whether the outermost file is one that nobody named.
    found: bool,
    open: Vec<(PathBuf, PathBuf)>,
    /// Every file read, in order.
    pub(crate) read: Vec<PathBuf>,
}

impl<'f> Includes<'f> {
    pub(crate) fn new(files: &'f dyn Files) -> Self {
        Self {
            files,
            found: false,
            open: Vec::new(),
            read: Vec::new(),
        }
    }

    /// The same for a file that nobody named.
    pub(crate) fn of_found(files: &'f dyn Files) -> Self {
        Self {
            found: true,
            ..Self::new(files)
        }
    }

    /// Reads `path` and calls `parse` with it; `asked_by` is the line that includes it.
    pub(crate) fn with_file<T>(
        &mut self,
        path: &Path,
        asked_by: Option<&At>,
        parse: impl FnOnce(&mut Self, &At, &str) -> Result<T>,
    ) -> Result<T> {
        let refuse = |message: String| match asked_by {
            Some(at) => at.error(message),
            None => Error::config("configuration", message),
        };
        let identity = self.files.identity(path);
        if let Some(start) = self.open.iter().position(|(open, _)| *open == identity) {
            let chain = self.open[start..].iter().map(|(_, name)| name.as_path());
            let chain: Vec<_> = chain
                .chain([path])
                .map(|p| p.display().to_string())
                .collect();
            return Err(refuse(format!("include cycle: {}", chain.join(" -> ")))
                .with_hint("remove one of the includes"));
        }
        if self.open.len() >= MAX_DEPTH || self.read.len() >= MAX_FILES {
            return Err(refuse(format!(
                "more than {MAX_DEPTH} nested or {MAX_FILES} included files"
            )));
        }
        let text = match asked_by {
            None if self.found => self.files.read_found(path),
            _ => self.files.read(path),
        };
        let text = text.map_err(|error| {
            refuse(format!("cannot read {}: {error}", path.display()))
                .with_hint(remedy(
                    &error,
                    path,
                    "give the path of a readable text file",
                ))
                .with_source(error)
        })?;
        self.open.push((identity, path.to_owned()));
        self.read.push(path.to_owned());
        let parsed = parse(self, &At::start(path), &text);
        self.open.pop();
        parsed
    }
}

/// A line of a file.
#[derive(Debug, Clone)]
pub(crate) struct At {
    path: Arc<Path>,
    line: u32,
}

impl At {
    pub(crate) fn start(path: &Path) -> Self {
        Self {
            path: path.into(),
            line: 1,
        }
    }

    /// Another line of the same file.
    pub(crate) fn line(&self, line: usize) -> Self {
        Self {
            path: Arc::clone(&self.path),
            line: u32::try_from(line).unwrap_or(u32::MAX),
        }
    }

    /// A path given in this file: relative to its directory.
    pub(crate) fn relative(&self, path: &str) -> PathBuf {
        match self.path.parent() {
            Some(directory) => directory.join(path),
            None => PathBuf::from(path),
        }
    }

    pub(crate) fn source(&self) -> Source {
        Source::File {
            path: Arc::clone(&self.path),
            line: self.line,
        }
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        Error::config("configuration", message).with_context("at", self.source())
    }

    pub(crate) fn selector_error(&self, error: SelectorError) -> Error {
        self.error(error.message).with_hint(error.hint)
    }

    /// The error of a name, told at this line.
    pub(crate) fn name_error(&self, error: &Error) -> Error {
        let told = self.error(error.message());
        match error.hint() {
            Some(hint) => told.with_hint(hint),
            None => told,
        }
    }
}
