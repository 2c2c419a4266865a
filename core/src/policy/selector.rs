//! Selectors, by which a route names implementations.

use std::fmt;
use std::sync::Arc;

use crate::descriptions::{Ambiguous, Names};
use crate::nearest;
use crate::registry::{Implementation, Kind};

/// Torch-FL's name for implementations in Python, FlagGems' kernels.
pub(super) const FLAGOS_PYTHON: &str = "flagos_python";

/// A backend name of Torch-FL's `backends.conf`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// `flaggems`: FlagGems.
    FlagGems,
    /// `flagos_python`: implementations in Python, FlagGems' among them.
    FlagosPython,
    /// `cpu`.
    Cpu,
    /// The name of a vendor.
    Vendor(Arc<str>),
}

impl Backend {
    /// The backend names that are no vendor's. `flagos` is left out, because it is the selector of a kind.
    const OWN: &'static [Self] = &[Self::FlagGems, Self::FlagosPython, Self::Cpu];

    /// The name used in configuration.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::FlagGems => "flaggems",
            Self::FlagosPython => FLAGOS_PYTHON,
            Self::Cpu => "cpu",
            Self::Vendor(name) => name,
        }
    }

    /// The backend of that name, or of its other name: `flaggems_python` is `flagos_python`, `flaggems_cpp` is
    /// `flaggems`, and a vendor may have several.
    fn parse(text: &str, names: &Names) -> Result<Option<Self>, Ambiguous> {
        match text {
            "flaggems_python" => return Ok(Some(Self::FlagosPython)),
            // FlagGems' wrappers in C++, which launch the same kernels.
            "flaggems_cpp" => return Ok(Some(Self::FlagGems)),
            _ => {}
        }
        if let Some(own) = Self::OWN.iter().find(|own| own.as_str() == text) {
            return Ok(Some(own.clone()));
        }
        let vendor = names.vendor(text)?;
        Ok(vendor.map(|vendor| Self::Vendor(Arc::clone(vendor))))
    }

    /// Whether this name selects an implementation.
    #[must_use]
    pub fn matches(&self, implementation: &Implementation) -> bool {
        match self {
            // The legacy name for FlagGems' Python kernels, the only ones that flagos calls.
            Self::FlagosPython => {
                &*implementation.backend == self.as_str() || is_flaggems(implementation)
            }
            // An implementation of the vendor may be named after the device type that its kernels are for.
            Self::Vendor(vendor) => {
                implementation.backend == *vendor || is_of_vendor(implementation, vendor)
            }
            Self::FlagGems | Self::Cpu => &*implementation.backend == self.as_str(),
        }
    }
}

/// Whether an implementation is the vendor's own.
fn is_of_vendor(implementation: &Implementation, vendor: &Arc<str>) -> bool {
    implementation.kind == Kind::Vendor && implementation.vendor.as_ref() == Some(vendor)
}

/// Whether an implementation is a FlagGems kernel.
pub(crate) fn is_flaggems(implementation: &Implementation) -> bool {
    &*implementation.backend == Backend::FlagGems.as_str()
}

/// One alternative of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// `flagos` or `reference`: any implementation of that kind. `vendor`: the native
    /// implementation of the active vendor.
    Kind(Kind),
    /// `vendor:<name>`: the native implementation of that vendor.
    Vendor(Arc<str>),
    /// `impl:<id>`: the implementation of that id.
    Implementation(Arc<str>),
    /// A legacy backend name.
    Backend(Backend),
}

impl Selector {
    /// Reads one selector. A vendor's other name in it means the vendor. The error has a hint.
    pub fn parse(text: &str, names: &Names) -> Result<Self, SelectorError> {
        let text = text.trim();
        if let Some((prefix, name)) = text.split_once(':') {
            return match prefix {
                "vendor" if valid_name(name) => Ok(Self::Vendor(names.canonical(name)?)),
                "impl" if valid_name(name) => Ok(Self::Implementation(name.into())),
                _ => Err(SelectorError::new(text, names)),
            };
        }
        if let Some(kind) = Kind::parse(text) {
            return Ok(Self::Kind(kind));
        }
        match Backend::parse(text, names)? {
            Some(backend) => Ok(Self::Backend(backend)),
            None => Err(SelectorError::new(text, names)),
        }
    }

    /// Whether this alternative names an implementation.
    #[must_use]
    pub fn names(&self, implementation: &Implementation) -> bool {
        match self {
            Self::Kind(kind) => implementation.kind == *kind,
            Self::Vendor(vendor) => is_of_vendor(implementation, vendor),
            Self::Implementation(id) => implementation.impl_id == *id,
            Self::Backend(backend) => backend.matches(implementation),
        }
    }

    /// Reads alternatives separated by `|`, at least one, each at most once.
    pub fn parse_list(text: &str, names: &Names) -> Result<Vec<Self>, SelectorError> {
        let mut selectors = Vec::new();
        for part in text.split('|') {
            push_unique(&mut selectors, Self::parse(part, names)?)?;
        }
        Ok(selectors)
    }
}

/// Appends an alternative, refusing one that is listed already.
pub(crate) fn push_unique(list: &mut Vec<Selector>, next: Selector) -> Result<(), SelectorError> {
    if list.contains(&next) {
        return Err(SelectorError {
            message: format!("`{next}` is listed twice"),
            hint: "list each alternative once".to_owned(),
        });
    }
    list.push(next);
    Ok(())
}

/// Whether a name is valid for a vendor or an implementation: without spaces, `|`, and characters that a shell
/// or TOML would change.
pub(crate) fn valid_name(name: &str) -> bool {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/');
    !name.is_empty() && name.bytes().all(valid)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => f.write_str(kind.as_str()),
            Self::Vendor(name) => write!(f, "vendor:{name}"),
            Self::Implementation(id) => write!(f, "impl:{id}"),
            Self::Backend(backend) => f.write_str(backend.as_str()),
        }
    }
}

impl serde::Serialize for Selector {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The error for a text that is not a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorError {
    /// The mistake.
    pub message: String,
    /// The text to write instead.
    pub hint: String,
}

impl From<Ambiguous> for SelectorError {
    fn from(ambiguous: Ambiguous) -> Self {
        Self {
            message: ambiguous.to_string(),
            hint: Ambiguous::HINT.to_owned(),
        }
    }
}

impl SelectorError {
    fn new(text: &str, names: &Names) -> Self {
        let words = Kind::ALL.map(Kind::as_str).into_iter();
        let words = words.chain(Backend::OWN.iter().map(Backend::as_str));
        let words = words.chain(names.all_found());
        let near = nearest::hint(text, words.chain(["vendor:<name>", "impl:<id>"]));
        let valid = format!(
            "use flagos, vendor, reference, vendor:<name>, impl:<id>, a backend (flaggems, flagos_python, cpu), \
             or a vendor ({})",
            names.found().collect::<Vec<_>>().join(", ")
        );
        let message = match text {
            "" => "a backend is missing".to_owned(),
            _ => format!("`{text}` is not a backend or selector"),
        };
        Self {
            message,
            hint: near.unwrap_or(valid),
        }
    }
}
