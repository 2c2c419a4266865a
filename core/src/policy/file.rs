//! Reading configuration files, and naming their lines in errors.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::selector::SelectorError;
use super::source::Source;
use crate::descriptions::Names;
use crate::trusted::{self, Refused};
use crate::{Error, Result};

/// The source of configuration files: the disk, or memory in tests.
pub trait Files: Send + Sync {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The text of a file that the user did not name, but that was found in a searched folder.
    fn read_found(&self, path: &Path) -> io::Result<String> {
        self.read(path)
    }

    /// Whether a file exists.
    fn exists(&self, path: &Path) -> bool;

    /// A path that is equal for two names of one file, by which a cycle of includes is noticed.
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

/// The hint for a file that could not be read: `otherwise`, unless the file was [`Refused`].
pub(crate) fn remedy(error: &io::Error, path: &Path, otherwise: &str) -> String {
    let path = path.display();
    match Refused::of(error) {
        Some(Refused::WorldWritable) => format!("check its content, then `chmod o-w {path}`"),
        Some(Refused::OwnedBy(_)) => {
            format!("check its content, then name it: FLAGOS_CONFIG={path}; or start elsewhere")
        }
        _ => otherwise.to_owned(),
    }
}

/// The file system. Refuses a file that is not regular, that every user may write, or that was found and not
/// named, and belongs to a user other than root and the process's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        trusted::read(path, false)
    }

    fn read_found(&self, path: &Path) -> io::Result<String> {
        trusted::read(path, true)
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

/// Reads a configuration file and the files it includes. Refuses cycles.
pub(crate) struct Includes<'f> {
    files: &'f dyn Files,
    /// The names of vendors that selectors may use.
    pub(crate) names: &'f Names,
    /// Whether the outermost file was found, and not named by the user.
    found: bool,
    open: Vec<(PathBuf, PathBuf)>,
    /// Every file read, in order.
    pub(crate) read: Vec<PathBuf>,
}

impl<'f> Includes<'f> {
    pub(crate) fn new(files: &'f dyn Files, names: &'f Names) -> Self {
        Self {
            files,
            names,
            found: false,
            open: Vec::new(),
            read: Vec::new(),
        }
    }

    /// A reader for an outermost file that was found, and not named by the user.
    pub(crate) fn of_found(files: &'f dyn Files, names: &'f Names) -> Self {
        Self {
            found: true,
            ..Self::new(files, names)
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

    /// A path written in this file, which is relative to the file's directory.
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

    /// The error about a name, with this line as its place.
    pub(crate) fn name_error(&self, error: &Error) -> Error {
        let located = self.error(error.message());
        match error.hint() {
            Some(hint) => located.with_hint(hint),
            None => located,
        }
    }
}
