//! Patterns: the operators that a route is for.

use std::fmt;

use crate::registry::{OpId, OpName, Registry};
use crate::{Error, Result};

/// The operators named by a key of a configuration layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpPattern {
    /// One operator, by its qualified name.
    Exact(String),
    /// `add.*`: every overload of an operator, by its qualified name without the overload.
    Overloads(String),
    /// The tail of a `FLAGOS_OP_*` variable. Decoding needs the registered operators, because `__` may stand
    /// for `.`, for `::`, or for itself (`__and__.Tensor`).
    Variable(String),
}

impl OpPattern {
    /// Reads the key of a configuration file or of an API call.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        match text.strip_suffix(".*") {
            Some(base) => {
                let name = OpName::parse(base)?;
                if name.overload.is_empty() {
                    return Ok(Self::Overloads(name.to_string()));
                }
                let message = format!("`{text}`: `*` must stand for the whole overload");
                Err(Error::invalid_argument("operator", message)
                    .with_hint(format!("write `{}.*`", name.base)))
            }
            None => Ok(Self::Exact(OpName::parse(text)?.to_string())),
        }
    }

    /// The namespace; `None` for the tail of a variable.
    fn namespace(&self) -> Option<&str> {
        match self {
            Self::Exact(name) | Self::Overloads(name) => name.split_once("::").map(|(ns, _)| ns),
            Self::Variable(_) => None,
        }
    }

    /// The registered operators that the pattern matches.
    ///
    /// `Ok` and empty when the namespace has no operators yet; an error with the nearest name when the namespace
    /// has operators and none matches.
    pub fn find(&self, registry: &Registry) -> Result<Vec<OpId>> {
        let found: Vec<_> = match self {
            Self::Exact(name) => registry.id(name).into_iter().collect(),
            Self::Overloads(base) => {
                let (namespace, base) = base.split_once("::").unwrap_or(("", base));
                let overloads = registry.overloads(namespace, base);
                overloads
                    .into_iter()
                    .filter_map(|n| registry.id(n))
                    .collect()
            }
            Self::Variable(tail) => return find_variable(tail, registry),
        };
        if !found.is_empty() {
            return Ok(found);
        }
        match self.namespace() {
            Some(namespace) if registry.is_populated(namespace) => Err(self.unknown(registry)),
            _ => Ok(found),
        }
    }

    fn unknown(&self, registry: &Registry) -> Error {
        let error = Error::config("operator", format!("unknown operator `{self}`"));
        let name = match self {
            Self::Exact(name) | Self::Overloads(name) | Self::Variable(name) => name,
        };
        match registry.suggest(name) {
            Some(hint) => error.with_hint(hint),
            None => error.with_hint("`flagos ops` lists the known ones"),
        }
    }
}

/// Whether `tail` is the name of an operator as variables write it, with `__` for `::` and `.`.
fn is_written(name: &str, tail: &str) -> bool {
    let (mut name, mut tail) = (name.as_bytes(), tail.as_bytes());
    loop {
        let (written, read) = match name {
            [] => return tail.is_empty(),
            [b':', b':', rest @ ..] | [b'.', rest @ ..] => (tail.strip_prefix(b"__"), rest),
            [letter, rest @ ..] => (tail.strip_prefix(&[*letter]), rest),
        };
        match written {
            Some(rest) => (name, tail) = (read, rest),
            None => return false,
        }
    }
}

fn find_variable(tail: &str, registry: &Registry) -> Result<Vec<OpId>> {
    let mut qualified = Vec::new();
    for (id, op) in registry.iter() {
        // The legacy spelling of an aten operator has no namespace.
        if let Some(rest) = op.name.strip_prefix("aten::") {
            if is_written(rest, tail) {
                return Ok(vec![id]);
            }
        }
        if is_written(&op.name, tail) {
            qualified.push(id);
        }
    }
    if !qualified.is_empty() {
        return Ok(qualified);
    }
    if could_be_unregistered(tail, registry) {
        return Ok(Vec::new());
    }
    let guess = tail.replacen("__", ".", 1);
    let error = Error::config("operator", format!("unknown operator `{guess}`"));
    Err(match registry.suggest(&guess) {
        Some(hint) => error.with_hint(hint),
        None => error.with_hint("write `.` as `__`, for example FLAGOS_OP_add__Tensor"),
    })
}

/// Whether a variable may name an operator of a namespace that has no operators yet.
fn could_be_unregistered(tail: &str, registry: &Registry) -> bool {
    if !registry.is_populated(crate::registry::DEFAULT_NAMESPACE) {
        return true;
    }
    // `te__rmsnorm_fwd` begins with the namespace of an adapter, and not with a base name of aten.
    match tail.split_once("__") {
        Some((head, _)) => ADAPTER_NAMESPACES.contains(&head) && !registry.is_populated(head),
        None => false,
    }
}

/// Namespaces of adapters that may load after the plan was first resolved.
const ADAPTER_NAMESPACES: [&str; 2] = ["te", "lightx2v"];

impl fmt::Display for OpPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Overloads(base) => write!(f, "{base}.*"),
            Self::Variable(tail) => f.write_str(tail),
        }
    }
}
