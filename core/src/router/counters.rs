//! The counters of operators' calls and fallbacks.

use std::sync::Arc;

use serde::Serialize;

use super::dispatch_log::log_fallback;
use super::fallbacks::FallbackRecord;
use super::state::Router;
use crate::Result;
use crate::policy::Policy;
use crate::registry::Ordering;

/// The counters of one operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// The qualified name.
    pub op: Arc<str>,
    /// The number of calls.
    pub calls: u64,
    /// The number of fallbacks to the CPU.
    pub fallbacks: u64,
}

impl Router {
    /// Counts a call that another implementation is about to serve than the chosen one, warns about the first one of
    /// each operator, and refuses it in strict mode or over the budget.
    pub fn record_fallback(&self, op: &str, reason: &str) -> Result<()> {
        self.fall_back(op, reason, false)
    }

    /// The same for a call that is about to run on the CPU.
    pub fn record_cpu_fallback(&self, op: &str, reason: &str) -> Result<()> {
        self.fall_back(op, reason, true)
    }

    fn fall_back(&self, op: &str, reason: &str, on_cpu: bool) -> Result<()> {
        let (name, slot) = {
            let state = self.state.lock();
            let op = state.registry.op(state.registry.require(op)?);
            (Arc::clone(&op.name), op.slot)
        };
        let logged = match &*self.plan.load() {
            Some(plan) => {
                self.fallbacks.record(&name, reason, plan.policy())?;
                plan.policy().log_fallback.value
            }
            None => {
                self.fallbacks.record(&name, reason, &Policy::default())?;
                false
            }
        };
        if logged {
            log_fallback(&name, on_cpu, reason);
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
