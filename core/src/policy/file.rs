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

/// Whoever may write the file decides what this process runs.
#[derive(Debug)]
struct WorldWritable;

impl fmt::Display for WorldWritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("every user may write to it")
    }
}

impl std::error::Error for WorldWritable {}

#[cfg(unix)]
const WRITABLE_BY_ALL: u32 = 0o002;

/// What to do about a file that could not be read; `otherwise` when it is not its mode.
pub(crate) fn remedy(error: &io::Error, path: &Path, otherwise: &str) -> String {
    match error.get_ref() {
        Some(inner) if inner.is::<WorldWritable>() => {
            format!("check what it says, then `chmod o-w {}`", path.display())
        }
        _ => otherwise.to_owned(),
    }
}

/// The file system. Files that every user may write to are refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut file = std::fs::File::open(path)?;
        // Asked of what has been opened, which nobody can put another file in the place of.
        #[cfg(unix)]
        if std::os::unix::fs::MetadataExt::mode(&file.metadata()?) & WRITABLE_BY_ALL != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                WorldWritable,
            ));
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    }

    fn exists(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }
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
    open: Vec<(PathBuf, PathBuf)>,
    /// Every file read, in order.
    pub(crate) read: Vec<PathBuf>,
}

impl<'f> Includes<'f> {
    pub(crate) fn new(files: &'f dyn Files) -> Self {
        Self {
            files,
            open: Vec::new(),
            read: Vec::new(),
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
        let text = self.files.read(path).map_err(|error| {
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
