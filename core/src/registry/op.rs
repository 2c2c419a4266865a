//! Names of operators.

use std::fmt;

use crate::{Error, Result};

/// An interned operator: an index into the registry that interned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub(crate) u32);

impl OpId {
    /// The index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The id of an index that is in use.
    pub(crate) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// The namespace of names without one.
pub const DEFAULT_NAMESPACE: &str = "aten";

/// A valid name, split: `aten::add.Tensor` is namespace `aten`, base `add`, overload `Tensor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpName<'a> {
    /// The part before `::`, or [`DEFAULT_NAMESPACE`].
    pub namespace: &'a str,
    /// The part between `::` and the first `.`.
    pub base: &'a str,
    /// The part after the first `.`; empty without one.
    pub overload: &'a str,
}

impl<'a> OpName<'a> {
    /// Splits and checks a name. Parts are made of ASCII letters, digits and `_`; an overload may
    /// contain further dots.
    pub fn parse(name: &'a str) -> Result<Self> {
        let (namespace, rest) = name.split_once("::").unwrap_or((DEFAULT_NAMESPACE, name));
        let (base, overload) = match rest.split_once('.') {
            Some((base, overload)) if !overload.is_empty() => (base, overload),
            Some(_) => return Err(bad_name(name)),
            None => (rest, ""),
        };
        let word = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let valid = !namespace.is_empty() && !base.is_empty() && word(namespace) && word(base);
        let overload_valid = overload.is_empty()
            || overload
                .split('.')
                .all(|part| !part.is_empty() && word(part));
        if !valid || !overload_valid {
            return Err(bad_name(name));
        }
        Ok(Self {
            namespace,
            base,
            overload,
        })
    }
}

fn bad_name(name: &str) -> Error {
    let message = match name {
        "" => "the name of an operator is missing".to_owned(),
        _ => format!("`{name}` is not the name of an operator"),
    };
    Error::invalid_argument("operator", message)
        .with_hint("write it like `mm`, `aten::add.Tensor` or `te::rmsnorm_fwd`")
}

impl fmt::Display for OpName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.namespace, self.base)?;
        if !self.overload.is_empty() {
            write!(f, ".{}", self.overload)?;
        }
        Ok(())
    }
}
