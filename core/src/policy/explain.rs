//! Explanations of a plan's decisions, as data and as text.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::plan::{Plan, PlanEntry, Reason};
use super::print;
use crate::Result;
use crate::registry::{Condition, Decision, Kind, Route, Verdict};

/// The plan's answer for one operator. `Display` is the text for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The qualified name.
    pub op: String,
    /// The adapter's action.
    pub route: Route,
    /// Whether torch decomposes the operator into others, which are routed themselves.
    pub composite: bool,
    /// The id of the chosen implementation.
    pub winner: Option<String>,
    /// The backend name of the chosen implementation.
    pub backend: Option<String>,
    /// The alternative that named the winner.
    pub selector: Option<String>,
    /// Every alternative, in order.
    pub selectors: Vec<String>,
    /// Whether the alternatives are for this operator, rather than for all.
    pub explicit: bool,
    /// The source of the alternatives: a line of a file, a variable, a call.
    pub decided_by: String,
    /// Every implementation, the winner first, then in the order of registration.
    #[serde(rename = "candidates")] // programs read this field
    pub implementations: Vec<ExplainedImplementation>,
    /// Calls of this process that the chosen implementation left to another one; none if there were none, or if only the
    /// plan was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallbacks: Option<ExplainedFallbacks>,
}

/// The calls in an [`Explanation`] that fell back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedFallbacks {
    /// How many there were.
    pub count: u64,
    /// The reason of the first one: a dtype, for instance, that a kernel does not take.
    pub reason: String,
}

/// One implementation in an [`Explanation`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedImplementation {
    /// The id.
    pub impl_id: String,
    /// The kind.
    pub kind: Kind,
    /// The vendor whose chips the implementation is made for.
    pub vendor: Option<String>,
    /// The backend name.
    pub backend: String,
    /// The priority.
    pub priority: i32,
    /// Whether the implementation was chosen.
    pub chosen: bool,
    /// The reason why the implementation was not chosen.
    pub reason: Option<String>,
    /// The conditions of the calls that the implementation serves; the native kernel serves the others. Empty when
    /// it serves all calls.
    pub only: Arc<[Condition]>,
    /// The result of comparing the implementation with another one.
    pub verdict: Option<Verdict>,
}

impl Explanation {
    pub(super) fn new(entry: &PlanEntry) -> Self {
        let mut implementations: Vec<_> = entry
            .implementations
            .iter()
            .map(|planned| {
                let implementation = &planned.implementation;
                ExplainedImplementation {
                    impl_id: implementation.impl_id.to_string(),
                    kind: implementation.kind,
                    vendor: implementation.vendor.as_deref().map(str::to_owned),
                    backend: implementation.backend.to_string(),
                    priority: implementation.priority,
                    chosen: planned.lost.is_none(),
                    reason: planned.lost.as_ref().map(ToString::to_string),
                    only: Arc::clone(&implementation.only),
                    verdict: implementation.verdict.clone(),
                }
            })
            .collect();
        implementations.sort_by_key(|explained| !explained.chosen);
        let winner = entry.winner();
        Self {
            op: entry.op.to_string(),
            route: entry.decision().route(),
            composite: entry.is_decomposed(),
            winner: winner.map(|i| i.impl_id.to_string()),
            backend: winner.map(|i| i.backend.to_string()),
            selector: entry.selector().map(ToString::to_string),
            selectors: entry.route.value.iter().map(ToString::to_string).collect(),
            explicit: entry.explicit,
            decided_by: entry.route.source.to_string(),
            implementations,
            fallbacks: None,
        }
    }

    /// The reason why no implementation serves the operator, on one line.
    pub(super) fn blocked_line(&self) -> String {
        let route = self.selectors.join("|");
        let decided_by = &self.decided_by;
        let mut line = format!(
            "{} is blocked: none of `{route}`, set by {decided_by}, is usable",
            self.op
        );
        let not_named = Reason::NotNamed.to_string();
        let mut reasons = self.implementations.iter().map(|e| e.reason.as_ref());
        if !self.implementations.is_empty() && reasons.all(|reason| reason == Some(&not_named)) {
            line.push_str(": nothing that is installed here provides it");
        }
        for (index, explained) in self.implementations.iter().enumerate() {
            let reason = explained.reason.as_deref().unwrap_or_default();
            let separator = if index == 0 { " (" } else { "; " };
            line.push_str(&format!("{separator}{}: {reason}", explained.impl_id));
        }
        if self.implementations.is_empty() {
            line.push_str(" (no implementation is registered)");
        } else {
            line.push(')');
        }
        line
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.composite {
            let op = &self.op;
            return write!(
                f,
                "{op} -> composite\n  torch decomposes it into other operators, which are routed themselves"
            );
        }
        let target = match (&self.winner, self.route) {
            (Some(winner), _) => winner.as_str(),
            (None, Route::Blocked) => "blocked",
            (None, _) => "the adapter's own path",
        };
        writeln!(f, "{} -> {target}", self.op)?;
        let scope = if self.explicit { "route" } else { "order" };
        writeln!(f, "  {scope}: {}", self.selectors.join("|"))?;
        write!(f, "  decided by: {}", self.decided_by)?;
        if self.implementations.is_empty() {
            return write!(f, "\n  no implementation is registered");
        }
        let width = self.implementations.iter().map(|c| c.impl_id.len()).max();
        let width = width.unwrap_or_default();
        for explained in &self.implementations {
            let mark = if explained.chosen { '*' } else { ' ' };
            write!(
                f,
                "\n  {mark} {:width$}  {}",
                explained.impl_id, explained.kind
            )?;
            if let Some(vendor) = &explained.vendor {
                write!(f, ", vendor {vendor}")?;
            }
            write!(f, ", backend {}", explained.backend)?;
            if explained.priority != 0 {
                write!(f, ", priority {}", explained.priority)?;
            }
            match (&explained.reason, &self.selector) {
                (Some(reason), _) => write!(f, ": {reason}")?,
                (None, Some(selector)) => write!(f, ": chosen by `{selector}`")?,
                (None, None) => {}
            }
            explained.write_conditions(f)?;
        }
        match &self.fallbacks {
            None => Ok(()),
            Some(ExplainedFallbacks { count, reason }) => {
                write!(f, "\n  fallbacks: {count}, of which the first: {reason}")
            }
        }
    }
}

impl ExplainedImplementation {
    /// Writes the conditions of the calls that the implementation serves, and the verdict behind them, unless `reason`
    /// is that verdict.
    fn write_conditions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.only.is_empty() {
            let means: Vec<_> = self.only.iter().map(|c| &*c.means).collect();
            let means = means.join(" and ");
            write!(
                f,
                "\n      serves a call only when {means}; other calls go to the native kernel"
            )?;
        }
        let is_news = |verdict: &&Verdict| match &self.reason {
            Some(reason) => !reason.contains(&*verdict.found),
            None => true,
        };
        if let Some(Verdict { verdict, found }) = self.verdict.as_ref().filter(is_news) {
            write!(f, "\n      verdict: {verdict} {found}")?;
        }
        Ok(())
    }
}

/// The outcome of an entry in a lock file.
pub(super) fn outcome(entry: &PlanEntry) -> &str {
    match (entry.winner(), entry.decision()) {
        (Some(winner), _) => &winner.impl_id,
        (None, Decision::Blocked) => BLOCKED,
        (None, _) => NATIVE,
    }
}

/// The outcomes without an implementation, which no implementation can have as its id.
const BLOCKED: &str = "!blocked";
const NATIVE: &str = "!native";

/// The source of an entry's outcome, for the report on differences.
pub(super) fn decided(entry: &PlanEntry) -> String {
    let route = print::join(&entry.route.value);
    format!("{route}, set by {}", entry.route.source)
}

impl PlanEntry {
    /// The reason why the operator is blocked, on one line; `None` when it is not blocked.
    #[must_use]
    pub fn blocked_reason(&self) -> Option<String> {
        (self.decision() == Decision::Blocked).then(|| self.explain().blocked_line())
    }

    /// The explanation of the entry.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        Explanation::new(self)
    }
}

impl Plan {
    /// The explanation of an operator's entry, or an error with the nearest name.
    pub fn explain(&self, op: &str) -> Result<Explanation> {
        self.find(op).map(PlanEntry::explain)
    }
}
