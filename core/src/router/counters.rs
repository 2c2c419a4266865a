//! Counters. CPU fallbacks are reported once per operator, and refused over a budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use super::state::Router;
use crate::policy::Policy;
use crate::registry::Ordering;
use crate::{Error, Result};

/// The CPU fallbacks of one operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FallbackRecord {
    /// The qualified name.
    pub op: Arc<str>,
    /// How many there were.
    pub count: u64,
    /// The reason of the first.
    pub reason: String,
}

/// Every CPU fallback of the process. Fallbacks copy tensors, so that a lock is not what costs.
#[derive(Debug, Default)]
pub(super) struct FallbackLedger {
    records: Mutex<(u64, BTreeMap<Arc<str>, FallbackRecord>)>,
}

impl FallbackLedger {
    /// Counts a fallback that is about to happen, or refuses it. Refused ones are not counted.
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
            // After the lock: a subscriber may call back into the router.
            tracing::warn!(op = %op, reason, "operator falls back to another implementation");
        }
        Ok(())
    }

    pub(super) fn records(&self) -> Vec<FallbackRecord> {
        self.records.lock().1.values().cloned().collect()
    }

    pub(super) fn reset(&self) {
        *self.records.lock() = Default::default();
    }
}

/// The counters of one operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// The qualified name.
    pub op: Arc<str>,
    /// How often it was called.
    pub calls: u64,
    /// How often it fell back to the CPU.
    pub fallbacks: u64,
}

impl Router {
    /// Counts a CPU fallback that is about to happen, warns about the first one of each operator,
    /// and refuses it in strict mode or over the budget.
    pub fn record_fallback(&self, op: &str, reason: &str) -> Result<()> {
        let (name, slot) = {
            let state = self.state.lock();
            let op = state.registry.op(state.registry.require(op)?);
            (Arc::clone(&op.name), op.slot)
        };
        match &*self.plan.load() {
            Some(plan) => self.fallbacks.record(&name, reason, plan.policy())?,
            None => self.fallbacks.record(&name, reason, &Policy::default())?,
        }
        slot.fallbacks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Every operator that fell back, with the reason of its first fallback.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<FallbackRecord> {
        self.fallbacks.records()
    }

    /// The counters of every operator that was called or fell back, sorted by name.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        let state = self.state.lock();
        let counted = state.registry.iter().map(|(_, op)| Counters {
            op: Arc::clone(&op.name),
            calls: op.slot.calls.load(Ordering::Relaxed),
            fallbacks: op.slot.fallbacks.load(Ordering::Relaxed),
        });
        let mut counted: Vec<_> = counted.filter(|c| c.calls + c.fallbacks > 0).collect();
        counted.sort_by(|a, b| a.op.cmp(&b.op));
        counted
    }

    /// Sets every counter, and the spent part of the fallback budget, to zero.
    pub fn reset_counters(&self) {
        for (_, op) in self.state.lock().registry.iter() {
            op.slot.calls.store(0, Ordering::Relaxed);
            op.slot.fallbacks.store(0, Ordering::Relaxed);
        }
        self.fallbacks.reset();
    }
}
