//! Lock files: a saved plan, with which a later plan is compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::explain::{decided, outcome};
use super::file::At;
use super::plan::{Plan, PlanEntry};
use crate::{Error, Result};

/// The version of the format, which changes when the meaning of a line does.
const VERSION: &str = "1";

/// The most differences that an error lists.
const SHOWN: usize = 100;

pub(super) fn write(plan: &Plan) -> String {
    let mut text = format!(
        "# The implementation of every operator, as flagos resolved it.\n\
         # Set FLAGOS_LOCK to this file to have a different plan refused.\n\
         version = {VERSION}\n\n[ops]\n"
    );
    let lines: BTreeMap<&str, &str> = decided_ones(plan).map(|e| (&*e.op, outcome(e))).collect();
    for (op, outcome) in lines {
        // Writing to a String cannot fail. Names and ids contain nothing that TOML would escape.
        let _ = writeln!(text, "\"{op}\" = \"{outcome}\"");
    }
    text
}

/// The entries of a lock file: all but those of decomposed operators, for which nothing is decided.
fn decided_ones(plan: &Plan) -> impl Iterator<Item = &PlanEntry> {
    plan.iter().filter(|entry| !entry.is_decomposed())
}

fn read(name: &str, text: &str) -> Result<BTreeMap<String, String>> {
    let start = At::start(Path::new(name));
    let at = |offset: usize| {
        let before = &text.as_bytes()[..offset.min(text.len())];
        start.line(1 + before.iter().filter(|b| **b == b'\n').count())
    };
    let damaged = |offset: usize, what: String| {
        let hint = "write the file again with `flagos ops --lock`";
        at(offset).error(what).with_hint(hint)
    };
    let root = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        damaged(offset, format!("not a lock file: {}", error.message()))
    })?;
    let root = root.get_ref();
    match root.get("version").map(|version| version.get_ref()) {
        Some(DeValue::Integer(version)) if version.as_str() == VERSION => {}
        _ => return Err(damaged(0, format!("not a lock file of version {VERSION}"))),
    }
    let mut locked = BTreeMap::new();
    let Some(DeValue::Table(ops)) = root.get("ops").map(|ops| ops.get_ref()) else {
        return Err(damaged(0, "not a lock file: no [ops]".to_owned()));
    };
    for (op, outcome) in ops {
        let DeValue::String(outcome) = outcome.get_ref() else {
            let message = format!("`{}` must be the id of an implementation", op.get_ref());
            return Err(damaged(op.span().start, message));
        };
        locked.insert(op.get_ref().to_string(), outcome.to_string());
    }
    Ok(locked)
}

pub(super) fn check(plan: &Plan, name: &str, text: &str) -> Result<()> {
    let mut locked = read(name, text)?;
    let mut entries: Vec<_> = decided_ones(plan).collect();
    entries.sort_by(|a, b| a.op.cmp(&b.op));
    let mut differences = Vec::new();
    for entry in entries {
        let now = outcome(entry);
        match locked.remove(&*entry.op) {
            Some(before) if before == now => {}
            Some(before) => {
                let why = decided(entry);
                differences.push(format!("~ {}: {before} -> {now} ({why})", entry.op));
            }
            None => differences.push(format!("+ {}: {now} (not locked)", entry.op)),
        }
    }
    // Operators of an adapter that is not loaded are not compared.
    let namespace = |op: &str| op.split_once("::").map(|(ns, _)| ns.to_owned());
    let loaded: std::collections::HashSet<_> = plan.iter().map(|e| namespace(&e.op)).collect();
    for (op, before) in locked {
        if loaded.contains(&namespace(&op)) {
            differences.push(format!("- {op}: {before} (no longer registered)"));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let count = differences.len();
    let mut detail = differences[..count.min(SHOWN)].join("\n");
    if count > SHOWN {
        let _ = write!(detail, "\n... and {} more", count - SHOWN);
    }
    let first = &differences[0];
    let operators = if count == 1 { "operator" } else { "operators" };
    let message = format!("the plan differs from {name} in {count} {operators}, first {first}");
    Err(Error::config("lock", message)
        .with_hint("restore the routes, or write the lock file again")
        .with_detail(detail))
}

impl Plan {
    /// The lock file of this plan: stable text, sorted by name.
    #[must_use]
    pub fn lock(&self) -> String {
        write(self)
    }

    /// Compares with the text of a lock file. The error's [detail](Error::detail) lists every
    /// difference. Operators of a namespace this plan has none of are not compared.
    pub fn check_lock(&self, name: &str, text: &str) -> Result<()> {
        check(self, name, text)
    }
}
