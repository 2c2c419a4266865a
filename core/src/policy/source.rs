//! The source of a setting.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The place where a setting was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The built-in defaults.
    BuiltIn,
    /// A line of a configuration file.
    File {
        /// The path by which the file was found.
        path: Arc<Path>,
        /// The number of the line, from 1.
        line: u32,
    },
    /// An environment variable.
    Env {
        /// The name of the variable.
        var: Arc<str>,
    },
    /// A call of the API.
    Api {
        /// The call, for example `flagos.set_route("aten::mm", "cpu")`.
        call: Arc<str>,
    },
    /// A context that is active.
    Context,
}

impl Source {
    /// Whether this is a line of a file in the format of PyTorch-Plugin-FL.
    pub(crate) fn is_backends_conf(&self) -> bool {
        matches!(self, Self::File { path, .. } if path.extension().is_some_and(|extension| extension == "conf"))
    }

    /// A line of a file.
    pub fn file(path: &Path, line: u32) -> Self {
        Self::File {
            path: path.into(),
            line,
        }
    }

    /// An environment variable.
    pub fn env(var: &str) -> Self {
        Self::Env { var: var.into() }
    }

    /// A call of the API.
    pub fn api(call: &str) -> Self {
        Self::Api { call: call.into() }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("the built-in default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env { var } => write!(f, "the variable {var}"),
            Self::Api { call } => write!(f, "the call {call}"),
            Self::Context => f.write_str("the active routing context"),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The source of the value.
    pub source: Source,
}

impl<T> Sourced<T> {
    /// `value` set by `source`.
    pub fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }

    /// A built-in default.
    pub fn built_in(value: T) -> Self {
        Self::new(value, Source::BuiltIn)
    }
}
