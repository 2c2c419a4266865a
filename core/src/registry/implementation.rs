//! Implementations of operators.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::slot::Decision;

/// The kind of an implementation, which decides its place in the default order.
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
    /// The implementation can be used.
    Available,
    /// The implementation cannot be used, or must not be, because its results are wrong. The plan shows this reason.
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
    /// The slot's content when this callable is chosen.
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

/// A condition on the arguments of a call, which adapters check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// The name for adapters and tables: `contiguous`.
    pub name: Arc<str>,
    /// The meaning for people: `every tensor is contiguous`.
    pub means: Arc<str>,
}

/// The result of comparing an implementation with another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The result in a word: `STRICT`, `FAILED`.
    pub verdict: Arc<str>,
    /// The details: where and how often the implementations were compared, and how they differed.
    pub found: Arc<str>,
}

/// An implementation, without the operator it implements: for bulk registration, one value serves
/// every operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Implementation {
    /// The id among the implementations of an operator: `cpu.native`, `flaggems.python`.
    pub impl_id: Arc<str>,
    /// The kind.
    pub kind: Kind,
    /// The vendor whose chips the implementation is made for; `None` when it runs on any.
    pub vendor: Option<Arc<str>>,
    /// The backend name of configurations that selects the implementation: `cpu`, `flaggems`, `flagos_python`,
    /// `flagos`, or that of a vendor.
    pub backend: Arc<str>,
    /// The priority. Among equals the highest priority wins; then the alphabetically first id.
    pub priority: i32,
    /// Whether the implementation can be used in this process.
    pub availability: Availability,
    /// The reason why only a route of the operator's own may choose the implementation, and not the default order.
    pub on_request: Option<Arc<str>>,
    /// The conditions of the calls that the implementation serves; the native kernel serves the others.
    pub only: Arc<[Condition]>,
    /// The result of comparing the implementation with another one, if they were compared.
    pub verdict: Option<Verdict>,
    /// How the implementation is called.
    pub callable: Callable,
}

impl Implementation {
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

    /// The implementation, made for the chips of `vendor`.
    #[must_use]
    pub fn vendor(mut self, vendor: &str) -> Self {
        self.vendor = Some(vendor.into());
        self
    }

    /// The implementation, with this priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// The implementation, not usable for this reason.
    #[must_use]
    pub fn unavailable(mut self, reason: &str) -> Self {
        self.availability = Availability::Unavailable(reason.into());
        self
    }

    /// The implementation, chosen only by a route of the operator's own for this reason.
    #[must_use]
    pub fn on_request(mut self, reason: &str) -> Self {
        self.on_request = Some(reason.into());
        self
    }

    /// The implementation, serving only calls for which these conditions hold.
    #[must_use]
    pub fn only(mut self, conditions: impl IntoIterator<Item = Condition>) -> Self {
        self.only = conditions.into_iter().collect();
        self
    }

    /// The implementation, with the result of a comparison.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(verdict);
        self
    }

    /// The implementation, called by `callable`.
    #[must_use]
    pub fn callable(mut self, callable: Callable) -> Self {
        self.callable = callable;
        self
    }
}
