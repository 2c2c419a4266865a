//! CPU fallbacks: reported once per operator, and refused over a budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use crate::policy::{ExplainedFallbacks, Policy};
use crate::{Error, Result};

/// The CPU fallbacks of one operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FallbackRecord {
    /// The qualified name.
    pub op: Arc<str>,
    /// The number of fallbacks.
    pub count: u64,
    /// The reason of the first fallback.
    pub reason: String,
}

/// The CPU fallbacks of the process. A lock suffices, because a fallback copies tensors, which costs more.
#[derive(Debug, Default)]
pub(super) struct FallbackLedger {
    records: Mutex<(u64, BTreeMap<Arc<str>, FallbackRecord>)>,
}

impl FallbackLedger {
    /// Counts a fallback that is about to happen, or refuses it. A refused fallback is not counted.
    pub(super) fn record(&self, op: &Arc<str>, reason: &str, policy: &Policy) -> Result<()> {
        let refuse = |message: String, hint: &str| {
            Err(Error::unsupported(op.to_string(), message).with_hint(hint))
        };
        let strict = &policy.strict;
        if strict.value {
            let message = format!(
                "CPU fallback refused ({reason}): strict mode is set by {}",
                strict.source
            );
            return refuse(
                message,
                "route the operator to an implementation that supports the call",
            );
        }
        let mut records = self.records.lock();
        let (total, by_op) = &mut *records;
        let limit = &policy.max_cpu_fallback;
        if limit.value.is_some_and(|limit| *total >= limit) {
            let message = format!(
                "CPU fallback refused ({reason}): the budget of {total} set by {} is spent",
                limit.source
            );
            return refuse(
                message,
                "route the operator elsewhere, or raise max_cpu_fallback",
            );
        }
        *total += 1;
        let first = !by_op.contains_key(op);
        let record = by_op
            .entry(Arc::clone(op))
            .or_insert_with(|| FallbackRecord {
                op: Arc::clone(op),
                count: 0,
                reason: reason.to_owned(),
            });
        record.count += 1;
        drop(records);
        if first {
            // Logged without the lock, because a subscriber may call back into the router.
            tracing::warn!(op = %op, reason, "operator falls back to another implementation");
        }
        Ok(())
    }

    pub(super) fn records(&self) -> Vec<FallbackRecord> {
        self.records.lock().1.values().cloned().collect()
    }

    /// Those of one operator.
    pub(super) fn of(&self, op: &str) -> Option<ExplainedFallbacks> {
        let records = self.records.lock();
        let record = records.1.get(op)?;
        Some(ExplainedFallbacks {
            count: record.count,
            reason: record.reason.clone(),
        })
    }

    pub(super) fn reset(&self) {
        *self.records.lock() = Default::default();
    }
}
