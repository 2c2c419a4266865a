//! Implementations of operators.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::slot::Decision;

/// What an implementation is, which decides its place in the default order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// FlagGems and our own portable kernels.
    Flagos,
    /// The native kernel of a vendor.
    Vendor,
    /// The slow, trusted implementation.
    Reference,
}

impl Kind {
    /// Every kind, in the default order.
    pub const ALL: [Self; 3] = [Self::Flagos, Self::Vendor, Self::Reference];

    /// The name used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flagos => "flagos",
            Self::Vendor => "vendor",
            Self::Reference => "reference",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether an implementation can be used in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Available,
    /// It cannot, or must not because it is known to be wrong; the plan shows this reason.
    Unavailable(Arc<str>),
}

/// How an implementation is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callable {
    /// The adapter's own native path for the active vendor.
    Native,
    /// The adapter's native path on the CPU, used for devices whose memory is not the host's.
    CpuFallback,
    /// An object of the adapter's language, looked up by this token. Tokens are never reused.
    Foreign(u64),
}

impl Callable {
    /// What a slot holds when this callable is chosen.
    #[must_use]
    pub const fn decision(self) -> Decision {
        match self {
            Self::Native => Decision::Native,
            Self::CpuFallback => Decision::CpuFallback,
            Self::Foreign(token) => Decision::Foreign(token),
        }
    }

    /// The token of an object of the adapter's language; `None` for native paths.
    #[must_use]
    pub const fn token(self) -> Option<u64> {
        match self {
            Self::Foreign(token) => Some(token),
            Self::Native | Self::CpuFallback => None,
        }
    }
}

/// A condition on the arguments of a call. Adapters hold calls against it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// What adapters and tables call it: `contiguous`.
    pub name: Arc<str>,
    /// What it says of a call: `every tensor is contiguous`.
    pub means: Arc<str>,
}

/// What a comparison with another implementation has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// In a word: `STRICT`, `FAILED`.
    pub verdict: Arc<str>,
    /// Where, how often, and what was wrong.
    pub found: Arc<str>,
}

/// An implementation, without the operator it implements: for bulk registration, one value serves
/// every operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impl {
    /// Identifies it among the implementations of an operator: `cpu.native`, `flaggems.python`.
    pub impl_id: Arc<str>,
    /// What it is.
    pub kind: Kind,
    /// Whose chip it is made for; `None` when it runs anywhere.
    pub vendor: Option<Arc<str>>,
    /// The backend name it answers to: `cpu`, `cuda`, `metax`, `ascend`, `flaggems`,
    /// `flagos_python`, `flagos`.
    pub backend: Arc<str>,
    /// Among equals the higher one wins; then the alphabetically first id.
    pub priority: i32,
    /// Whether it can be used.
    pub availability: Availability,
    /// Why only a route of the operator's own may choose it, and not the default order.
    pub on_request: Option<Arc<str>>,
    /// What must hold for the calls it serves; the native kernel serves the others.
    pub only: Arc<[Condition]>,
    /// How it compared with another implementation, where it was compared.
    pub verdict: Option<Verdict>,
    /// How it is called.
    pub callable: Callable,
}

impl Impl {
    /// An available native implementation of priority 0.
    pub fn new(impl_id: &str, kind: Kind, backend: &str) -> Self {
        Self {
            impl_id: impl_id.into(),
            kind,
            vendor: None,
            backend: backend.into(),
            priority: 0,
            availability: Availability::Available,
            on_request: None,
            only: [].into(),
            verdict: None,
            callable: Callable::Native,
        }
    }

    /// Made for the chips of `vendor`.
    #[must_use]
    pub fn vendor(mut self, vendor: &str) -> Self {
        self.vendor = Some(vendor.into());
        self
    }

    /// With another priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Not usable, for this reason.
    #[must_use]
    pub fn unavailable(mut self, reason: &str) -> Self {
        self.availability = Availability::Unavailable(reason.into());
        self
    }

    /// Chosen only by a route of the operator's own, for this reason.
    #[must_use]
    pub fn on_request(mut self, reason: &str) -> Self {
        self.on_request = Some(reason.into());
        self
    }

    /// Serving only calls for which these conditions hold.
    #[must_use]
    pub fn only(mut self, conditions: impl IntoIterator<Item = Condition>) -> Self {
        self.only = conditions.into_iter().collect();
        self
    }

    /// With what a comparison has found.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(verdict);
        self
    }

    /// Called in another way than natively.
    #[must_use]
    pub fn callable(mut self, callable: Callable) -> Self {
        self.callable = callable;
        self
    }
}
