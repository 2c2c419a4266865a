//! The plan: the decision about every operator, and its reason.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::layer::{Policy, Route};
use super::selector::{Backend, FLAGOS_PYTHON, Selector, is_flaggems};
use super::source::Source;
use crate::registry::{Decision, Implementation, Kind, OpId, OpSlot, suggest};
use crate::{Error, Result};

/// The reason why an implementation was not chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The implementation was registered as not available.
    Unavailable(Arc<str>),
    /// The policy denies the implementation's vendor.
    VendorDenied(Source),
    /// The implementation's vendor is not among the allowed ones.
    VendorNotAllowed(Source),
    /// The implementation is made for another vendor than the active one, named here.
    VendorInactive(Arc<str>),
    /// FlagGems is kept out of every route.
    FlagGemsDisabled(Source),
    /// Only a route of the operator's own may choose the implementation, for this reason.
    OnRequest(Arc<str>),
    /// No alternative of the route names the implementation.
    NotNamed,
    /// An earlier alternative was usable than the one with this selector.
    LaterAlternative(Selector),
    /// The winner has a higher priority, or the same one and an id that sorts first.
    LowerPriority,
}

impl Reason {
    /// Whether the implementation could have been chosen, had the route named it first.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        matches!(
            self,
            Self::OnRequest(_) | Self::NotNamed | Self::LaterAlternative(_) | Self::LowerPriority
        )
    }

    /// Whether the implementation may serve a call that the winner declines. An implementation on request is
    /// usable, but does not take over, because only a route of the operator's own may choose it.
    #[must_use]
    pub const fn may_take_over(&self) -> bool {
        self.is_usable() && !matches!(self, Self::OnRequest(_))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(reason) => write!(f, "unavailable: {reason}"),
            Self::VendorDenied(source) => write!(f, "its vendor is denied by {source}"),
            Self::VendorNotAllowed(source) => write!(f, "its vendor is not allowed by {source}"),
            Self::VendorInactive(active) => write!(f, "the active vendor is {active}"),
            Self::FlagGemsDisabled(source) => write!(f, "FlagGems is disabled by {source}"),
            Self::OnRequest(reason) => write!(f, "only when asked for: {reason}"),
            Self::NotNamed => f.write_str("not named by the route"),
            Self::LaterAlternative(selector) => {
                write!(f, "a later alternative of the route ({selector})")
            }
            Self::LowerPriority => f.write_str("lower priority"),
        }
    }
}

/// An implementation as the plan saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedImplementation {
    /// The implementation.
    pub implementation: Arc<Implementation>,
    /// The reason why the implementation was not chosen; `None` for the winner.
    pub lost: Option<Reason>,
    /// The place among the usable implementations that the route names, from 0.
    pub rank: Option<usize>,
}

impl PlannedImplementation {
    /// Whether it may serve a call that another implementation declines.
    #[must_use]
    pub fn may_take_over(&self) -> bool {
        let asked_for = self.implementation.on_request.is_none() || self.rank.is_some();
        asked_for && self.lost.as_ref().is_none_or(Reason::may_take_over)
    }
}

/// The decision about one operator.
#[derive(Debug, Clone)]
pub struct PlanEntry {
    /// The qualified name.
    pub op: Arc<str>,
    /// The slot that the decision is published in.
    pub slot: &'static OpSlot,
    /// Whether `route` is a route of this operator, and not the default order.
    pub explicit: bool,
    /// Whether the framework decomposes the operator when nothing is chosen for it.
    pub composite: bool,
    /// The alternatives in the order they were tried, and their source.
    pub route: Arc<Route>,
    /// Every registered implementation, in the order of registration.
    pub implementations: Vec<PlannedImplementation>,
    /// The winner: its index in `implementations`, and the index of the alternative that named it.
    pub winner: Option<(usize, usize)>,
}

impl PlanEntry {
    /// The chosen implementation.
    #[must_use]
    pub fn winner(&self) -> Option<&Arc<Implementation>> {
        self.winner
            .map(|(index, _)| &self.implementations[index].implementation)
    }

    /// The name under which calls that `backend` serves are logged: `flagos_python` for FlagGems where the route names
    /// its kernels so, which is what Torch-FL calls them, and else `backend` itself.
    #[must_use]
    pub fn logged_as<'b>(&self, backend: &'b str) -> &'b str {
        let flaggems = |c: &&PlannedImplementation| is_flaggems(&c.implementation);
        let served = self.implementations.iter().find(flaggems);
        let Some(served) = served.filter(|_| backend == Backend::FlagGems.as_str()) else {
            return backend;
        };
        let named = |selector: &&Selector| selector.names(&served.implementation);
        match self.route.value.iter().find(named) {
            Some(Selector::Backend(Backend::FlagosPython)) => FLAGOS_PYTHON,
            _ => backend,
        }
    }

    /// The alternative of the route that named the winner.
    #[must_use]
    pub fn selector(&self) -> Option<&Selector> {
        self.winner.map(|(_, at)| &self.route.value[at])
    }

    /// Every usable implementation that the route names, in the order to try them: the winner first.
    #[must_use]
    pub fn ranked(&self) -> Vec<&Arc<Implementation>> {
        let mut ranked: Vec<_> = self
            .implementations
            .iter()
            .filter_map(|c| c.rank.map(|r| (r, c)))
            .collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, c)| &c.implementation).collect()
    }

    /// The implementations that may serve a call that `declined` refuses, in the order to ask them: kinds in
    /// the order vendor, reference, flagos, higher priorities first, then the winner and the order of
    /// registration. The route decides only about the choice: implementations that it does not name may take over.
    #[must_use]
    pub fn successors(&self, declined: &str) -> Vec<&Arc<Implementation>> {
        let last = |kind| match kind {
            Kind::Vendor => 0,
            Kind::Reference => 1,
            Kind::Flagos => 2,
        };
        let mut found: Vec<_> = self
            .implementations
            .iter()
            .filter(|planned| planned.may_take_over())
            .filter(|planned| &*planned.implementation.impl_id != declined)
            .collect();
        found.sort_by_key(|planned| {
            let implementation = &planned.implementation;
            let priority = Reverse(implementation.priority);
            (last(implementation.kind), priority, planned.lost.is_some())
        });
        found.into_iter().map(|c| &c.implementation).collect()
    }

    /// The slot's content for this entry.
    ///
    /// An operator without implementations and without a route is left to the adapter that interned it, and an
    /// operator that the framework decomposes to the framework.
    #[must_use]
    pub fn decision(&self) -> Decision {
        match self.winner() {
            Some(implementation) => implementation.callable.decision(),
            None if self.is_decomposed() => Decision::Native,
            None if self.implementations.is_empty() && !self.explicit => Decision::Native,
            None => Decision::Blocked,
        }
    }

    /// Whether the framework decomposes the operator into others, which have entries of their own.
    #[must_use]
    pub fn is_decomposed(&self) -> bool {
        self.composite && self.winner.is_none()
    }
}

/// The decisions about all operators. A plan is immutable; a change of policy makes another plan.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(super) entries: Vec<Arc<PlanEntry>>,
    pub(super) index: Arc<HashMap<Arc<str>, OpId>>,
    pub(super) policy: Arc<Policy>,
    pub(super) unmatched: Vec<(String, Source)>,
}

impl Plan {
    /// The policy this plan follows.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The entry of an operator by id, `None` when it was interned after this plan was made.
    #[must_use]
    pub fn entry(&self, id: OpId) -> Option<&PlanEntry> {
        self.entries.get(id.index()).map(AsRef::as_ref)
    }

    /// The entry of an operator by name, or an error that suggests what it may mean.
    pub fn find(&self, op: &str) -> Result<&PlanEntry> {
        let qualified;
        let name = if op.contains("::") {
            op
        } else {
            qualified = format!("aten::{op}");
            &qualified
        };
        if let Some(entry) = self.index.get(name).and_then(|id| self.entry(*id)) {
            return Ok(entry);
        }
        let error = Error::invalid_argument("plan", format!("unknown operator `{op}`"));
        let names = self.entries.iter().map(|entry| &*entry.op);
        Err(match suggest(op, names) {
            Some(hint) => error.with_hint(hint),
            None => error.with_hint("`flagos ops` lists the known ones"),
        })
    }

    /// Every entry, in the order in which operators were interned.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &PlanEntry> {
        self.entries.iter().map(AsRef::as_ref)
    }

    /// The number of operators that the plan covers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the plan covers no operator.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Routes for operators whose namespace has no operators yet, with their sources. They take effect, or are
    /// refused, when the namespace's first operator is registered.
    #[must_use]
    pub fn unmatched(&self) -> &[(String, Source)] {
        &self.unmatched
    }
}
