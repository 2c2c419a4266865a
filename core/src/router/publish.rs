//! Resolving a change into a plan, and publishing the plan into slots.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::scope::{Lock, Scope, flags};
use super::state::{Router, State};
use crate::Result;
use crate::policy::{self, Config, Layer, OpPattern, Plan, PlanEntry, Policy, Sourced};
use crate::registry::OpId;

impl Router {
    /// Has `tell` called after every change: of what is registered, of routes, of the plan. It is called
    /// under the router's lock, from the thread that made the change, and must not ask the router. The
    /// first one stays.
    pub fn when_changed(&self, tell: fn()) {
        let _ = self.changed.set(tell);
    }

    fn tell_of_change(&self) {
        if let Some(tell) = self.changed.get() {
            tell();
        }
    }

    /// Makes a change. Once a plan is published, the change is tried on a copy of the state, and kept only if it
    /// resolves.
    pub(super) fn change<R>(
        &self,
        edit: impl FnOnce(&mut State) -> Result<(Scope, R)>,
    ) -> Result<R> {
        let mut state = self.state.lock();
        if self.plan.load().is_none() {
            let (_, result) = edit(&mut state)?;
            self.tell_of_change();
            return Ok(result);
        }
        let mut next = state.clone();
        let (scope, result) = edit(&mut next)?;
        match scope {
            Scope::All => self.resolve_fully(&mut next, Lock::Ignored)?,
            Scope::Ops(changed) => self.resolve_part(&mut next, &changed)?,
        };
        *state = next;
        Ok(result)
    }

    /// Checks every name in the configuration, decides every operator, and publishes.
    pub(super) fn resolve_fully(&self, state: &mut State, lock: Lock) -> Result<Arc<Plan>> {
        let config = self.load_config(state)?;
        let plan = policy::resolve_all(&state.registry, &state.policy(&config));
        let plan = plan.and_then(|plan| match &config.lock {
            Some(path) if lock == Lock::Compared => self.compare(&plan, path).map(|()| plan),
            _ => Ok(plan),
        });
        match plan {
            Ok(plan) => Ok(self.publish(plan, None)),
            Err(error) => {
                // The next attempt must read the configuration again, which the user corrects meanwhile.
                if self.plan.load().is_none() {
                    state.config = None;
                }
                Err(error)
            }
        }
    }

    /// Decides the given operators and new ones, and publishes.
    pub(super) fn resolve_part(
        &self,
        state: &mut State,
        changed: &BTreeSet<OpId>,
    ) -> Result<Arc<Plan>> {
        let Some(old) = self.plan.load_full() else {
            return self.resolve_fully(state, Lock::Compared);
        };
        let config = self.load_config(state)?;
        let policy = state.policy(&config);
        let plan = policy::resolve_some(&old, &state.registry, &policy, changed)?;
        let mut rewritten = changed.clone();
        rewritten.extend((old.len()..plan.len()).map(OpId::from_index));
        Ok(self.publish(plan, Some(&rewritten)))
    }

    /// Publishes a plan and rewrites slots: all, or those of the given operators. Called under the state's lock.
    fn publish(&self, plan: Plan, only: Option<&BTreeSet<OpId>>) -> Arc<Plan> {
        let plan = Arc::new(plan);
        // The plan is stored first, so that a call that meets a blocked slot finds the reason in the plan.
        self.plan.store(Some(Arc::clone(&plan)));
        let flags = flags(&plan);
        let rewrite = |entry: &PlanEntry| {
            entry.slot.set_flags(flags);
            entry.slot.publish(entry.decision());
        };
        match only {
            Some(ids) => ids
                .iter()
                .filter_map(|id| plan.entry(*id))
                .for_each(rewrite),
            None => plan.iter().for_each(rewrite),
        }
        // The change is announced last, so that a listener that asks for the plan finds this one.
        self.tell_of_change();
        plan
    }
}

impl State {
    /// The policy of all layers.
    pub(super) fn policy(&self, config: &Config) -> Policy {
        self.policy_over(config, None)
    }

    /// The policy of all layers, with another layer in the place of an adapter's.
    pub(super) fn policy_over(&self, config: &Config, over: Option<(&str, &Layer)>) -> Policy {
        let detected = Layer {
            vendor: self.vendor.clone().map(Sourced::built_in),
            ..Layer::default()
        };
        let replaced = |name: &str| over.is_some_and(|(adapter, _)| adapter == name);
        let (environment, files) = match config.layers.split_last() {
            Some((environment, files)) => (Some(environment), files),
            None => (None, &config.layers[..]),
        };
        let set = |name: &str| replaced(name) || self.adapters.contains_key(name);
        let variables = config.adapters.iter().filter(|(name, _)| !set(name));
        let calls = self.adapters.iter().filter(|(name, _)| !replaced(name));
        let contexts = self.contexts.iter().map(|(_, layer)| layer);
        let layers = std::iter::once(&detected)
            .chain(files)
            .chain(variables.map(|(_, layer)| layer))
            .chain(environment)
            .chain(calls.map(|(_, layer)| layer))
            .chain(over.map(|(_, layer)| layer))
            .chain(std::iter::once(&self.api))
            .chain(contexts);
        Policy::from_layers(layers)
    }

    /// The operators that patterns match.
    pub(super) fn scope_of<'p>(&self, patterns: impl IntoIterator<Item = &'p OpPattern>) -> Scope {
        Scope::Ops(policy::matched(&self.registry, patterns))
    }
}
