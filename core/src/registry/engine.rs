//! The engine: a registry, the configuration, and the plan they make.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde::Serialize;

use super::fallback::{FallbackLedger, FallbackRecord};
use super::implementation::Impl;
use super::op::OpId;
use super::slot::{OpSlot, Ordering, FLAG_LOG_DISPATCH};
use super::table::Registry;
use crate::env::Env;
use crate::policy::{
    self, valid_name, Config, Disk, Explanation, Files, Layer, OpPattern, Plan, Policy, Selector,
    Source, Sourced,
};
use crate::{Error, Result};

/// The registry, the configuration and the published plan. [`global`](super::global) is the one of
/// the process; tests make their own.
///
/// Configuration is read when the plan is first resolved. Before that, registrations and routes
/// are only collected; afterwards each change is resolved and published at once, or refused and
/// undone.
pub struct Engine {
    state: Mutex<State>,
    plan: ArcSwapOption<Plan>,
    fallbacks: FallbackLedger,
    env: Box<dyn Fn() -> Env + Send + Sync>,
    files: Box<dyn Files>,
}

#[derive(Clone, Default)]
struct State {
    registry: Registry,
    config: Option<Arc<Config>>,
    shipped: Option<PathBuf>,
    vendor: Option<Arc<str>>,
    api: Layer,
    contexts: Vec<(ContextToken, Layer)>,
    last_token: u64,
}

/// Names a context that has been pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContextToken(pub u64);

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

/// What a change can affect, and which names have to be looked up again.
enum Scope {
    /// Everything: the whole configuration is checked.
    All,
    /// These operators, and those that are new.
    Ops(BTreeSet<OpId>),
}

impl Engine {
    /// An engine that reads its variables from `env` each time it (re)loads the configuration, and
    /// its files from `files`.
    pub fn new(env: impl Fn() -> Env + Send + Sync + 'static, files: impl Files + 'static) -> Self {
        Self {
            state: Mutex::default(),
            plan: ArcSwapOption::empty(),
            fallbacks: FallbackLedger::default(),
            env: Box::new(env),
            files: Box::new(files),
        }
    }

    pub(super) fn of_process() -> Self {
        Self::new(Env::from_process, Disk)
    }

    // ---- operators and implementations

    /// The slot of an operator, interning its name. The address is stable for the whole process.
    ///
    /// A new operator is routed when it gets an implementation, or at the next full resolution.
    pub fn slot(&self, op: &str) -> Result<&'static OpSlot> {
        let mut state = self.state.lock();
        let id = state.registry.intern(op)?;
        let slot = state.registry.op(id).slot;
        if let Some(plan) = &*self.plan.load() {
            slot.set_flags(flags(plan));
        }
        Ok(slot)
    }

    /// Names of operators that start with `prefix`, sorted.
    #[must_use]
    pub fn ops(&self, prefix: &str) -> Vec<Arc<str>> {
        let state = self.state.lock();
        let names = state.registry.iter().map(|(_, op)| &op.name);
        let mut names: Vec<_> = names.filter(|n| n.starts_with(prefix)).cloned().collect();
        names.sort_unstable();
        names
    }

    /// A copy of the registry, sharing the slots.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.state.lock().registry.clone()
    }

    /// Registers one implementation of one operator.
    pub fn register_impl(&self, op: &str, implementation: Impl) -> Result<()> {
        check_impl(&implementation)?;
        let implementation = Arc::new(implementation);
        self.change(|state| {
            let id = state.registry.register(op, implementation)?;
            Ok((Scope::Ops(BTreeSet::from([id])), ()))
        })
    }

    /// Registers one implementation for every operator named, all or none. `names` are without
    /// the namespace: `add.Tensor`.
    pub fn register_impls<N: AsRef<str>>(
        &self,
        namespace: &str,
        names: impl IntoIterator<Item = N>,
        implementation: Impl,
    ) -> Result<()> {
        check_impl(&implementation)?;
        let names = names.into_iter();
        let names: Vec<_> = names
            .map(|n| format!("{namespace}::{}", n.as_ref()))
            .collect();
        let implementation = Arc::new(implementation);
        self.change(|state| {
            let registry = &mut state.registry;
            let first_of_namespace = !registry.is_implemented(namespace);
            let ids = registry.register_all(&names, &implementation)?;
            // A namespace that appears: routes kept for it can be checked from now on.
            let scope = match first_of_namespace {
                true => Scope::All,
                false => Scope::Ops(ids),
            };
            Ok((scope, ()))
        })
    }

    /// Withdraws an implementation. A route that names it blocks its operator from then on.
    pub fn unregister(&self, op: &str, impl_id: &str) -> Result<()> {
        self.change(|state| {
            let id = state.registry.unregister(op, impl_id)?;
            Ok((Scope::Ops(BTreeSet::from([id])), ()))
        })
    }

    // ---- configuration

    /// The configuration of files and variables, read now if it has not been.
    pub fn config(&self) -> Result<Arc<Config>> {
        let mut state = self.state.lock();
        self.load_config(&mut state)
    }

    fn load_config(&self, state: &mut State) -> Result<Arc<Config>> {
        if let Some(config) = &state.config {
            return Ok(Arc::clone(config));
        }
        let shipped = state.shipped.as_deref();
        let config = Arc::new(Config::load(&(self.env)(), &*self.files, shipped)?);
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        state.config = Some(Arc::clone(&config));
        Ok(config)
    }

    /// Names the `backends.conf` an adapter comes with: the weakest layer of configuration, which
    /// `FLAGOS_BACKEND_CONFIG` replaces.
    pub fn set_shipped_config(&self, path: &Path) -> Result<()> {
        self.change(|state| {
            state.shipped = Some(path.to_owned());
            state.config = None;
            Ok((Scope::All, ()))
        })
    }

    /// Sets the vendor whose devices are used, as the runtime found it.
    pub fn set_active_vendor(&self, vendor: &str) -> Result<()> {
        self.change(|state| {
            state.vendor = Some(vendor.into());
            Ok((Scope::All, ()))
        })
    }

    /// Reads files and variables again. When that fails, everything stays as it was.
    pub fn reload(&self) -> Result<Arc<Plan>> {
        let mut state = self.state.lock();
        let mut next = state.clone();
        next.config = None;
        let plan = self.resolve_fully(&mut next)?;
        *state = next;
        Ok(plan)
    }

    // ---- the API layer and contexts

    /// Routes an operator, or every overload with `add.*`, until [`Engine::clear_route`].
    /// `selectors` are alternatives separated by `|`; `call` is shown as what decided.
    pub fn set_route(&self, op: &str, selectors: &str, call: &str) -> Result<()> {
        let (pattern, selectors) = parse_route(op, selectors)?;
        self.change(|state| {
            let mut single = Layer::default();
            single.route(pattern.clone(), selectors, Source::api(call));
            policy::check_layer(&state.registry, &single)?;
            state.api.ops.retain(|(known, _)| *known != pattern);
            state.api.overlay(single);
            Ok((state.scope_of([&pattern]), ()))
        })
    }

    /// Takes back [`Engine::set_route`], for one operator or for all. Returns how many there were.
    pub fn clear_route(&self, op: Option<&str>) -> Result<usize> {
        let wanted = op.map(OpPattern::parse).transpose()?;
        self.change(|state| {
            let all = std::mem::take(&mut state.api.ops);
            let keep = |pattern: &OpPattern| wanted.as_ref().is_some_and(|w| w != pattern);
            let (kept, cleared): (Vec<_>, Vec<_>) = all.into_iter().partition(|(p, _)| keep(p));
            state.api.ops = kept;
            let scope = state.scope_of(cleared.iter().map(|(pattern, _)| pattern));
            Ok((scope, cleared.len()))
        })
    }

    /// Changes anything else in the API layer, for example `|layer| layer.strict = ...`.
    pub fn update_api(&self, edit: impl FnOnce(&mut Layer)) -> Result<()> {
        self.change(|state| {
            edit(&mut state.api);
            Ok((Scope::All, ()))
        })
    }

    /// Turns strict mode on or off, on top of files and variables.
    pub fn set_strict(&self, strict: bool) -> Result<()> {
        let source = Source::api(&format!("flagos.set_strict({strict})"));
        self.update_api(|layer| layer.strict = Some(Sourced::new(strict, source)))
    }

    /// Puts routes (operator, selectors) on top of everything until [`Engine::pop_context`].
    pub fn push_context<'a>(
        &self,
        routes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<ContextToken> {
        let mut layer = Layer::default();
        for (op, selectors) in routes {
            let (pattern, selectors) = parse_route(op, selectors)?;
            layer.route(pattern, selectors, Source::Context);
        }
        self.change(|state| {
            policy::check_layer(&state.registry, &layer)?;
            state.last_token += 1;
            let token = ContextToken(state.last_token);
            let scope = state.scope_of(layer.ops.iter().map(|(pattern, _)| pattern));
            state.contexts.push((token, layer));
            Ok((scope, token))
        })
    }

    /// Removes a context, wherever it is in the stack: contexts of several threads may overlap.
    pub fn pop_context(&self, token: ContextToken) -> Result<()> {
        self.change(|state| {
            let found = state.contexts.iter().position(|(known, _)| *known == token);
            let Some(at) = found else {
                let message = "this context is not active";
                return Err(Error::invalid_argument("pop_context", message)
                    .with_hint("pop each context once"));
            };
            let (_, layer) = state.contexts.remove(at);
            Ok((state.scope_of(layer.ops.iter().map(|(p, _)| p)), ()))
        })
    }

    // ---- the plan

    /// Reads the configuration if it has not been read, checks all of it against what is
    /// registered, decides every operator, compares with `FLAGOS_LOCK`, and publishes.
    pub fn resolve(&self) -> Result<Arc<Plan>> {
        let mut state = self.state.lock();
        self.resolve_fully(&mut state)
    }

    /// The published plan, up to date with every interned operator; resolved now if there is none.
    pub fn plan(&self) -> Result<Arc<Plan>> {
        let mut state = self.state.lock();
        match self.plan.load_full() {
            Some(plan) if plan.len() == state.registry.len() => Ok(plan),
            Some(_) => self.resolve_part(&mut state, &BTreeSet::new()),
            None => self.resolve_fully(&mut state),
        }
    }

    /// The published plan, without resolving.
    #[must_use]
    pub fn published(&self) -> Option<Arc<Plan>> {
        self.plan.load_full()
    }

    /// Why an operator runs where it runs.
    pub fn explain(&self, op: &str) -> Result<Explanation> {
        self.plan()?.explain(op)
    }

    /// Why an operator is blocked, `None` when it is not: then its slot has just been rewritten.
    pub fn blocked_reason(&self, op: &str) -> Result<Option<String>> {
        Ok(self.plan()?.find(op)?.blocked_reason())
    }

    /// The plan as lock file text.
    pub fn lock_text(&self) -> Result<String> {
        Ok(self.plan()?.lock())
    }

    /// Compares the plan with a lock file.
    pub fn check_lock(&self, path: &Path) -> Result<()> {
        let plan = self.plan()?;
        self.compare(&plan, path)
    }

    fn compare(&self, plan: &Plan, path: &Path) -> Result<()> {
        let text = self.files.read(path).map_err(|error| {
            Error::config("lock", format!("cannot read {}: {error}", path.display()))
                .with_hint("correct the path of the lock file")
                .with_source(error)
        })?;
        plan.check_lock(&path.display().to_string(), &text)
    }

    // ---- counters

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

    // ---- resolution

    /// Makes a change. Once a plan is published, the change is tried on a copy, and kept only if it
    /// resolves.
    fn change<R>(&self, edit: impl FnOnce(&mut State) -> Result<(Scope, R)>) -> Result<R> {
        let mut state = self.state.lock();
        if self.plan.load().is_none() {
            return edit(&mut state).map(|(_, result)| result);
        }
        let mut next = state.clone();
        let (scope, result) = edit(&mut next)?;
        match scope {
            Scope::All => self.resolve_fully(&mut next)?,
            Scope::Ops(changed) => self.resolve_part(&mut next, &changed)?,
        };
        *state = next;
        Ok(result)
    }

    fn resolve_fully(&self, state: &mut State) -> Result<Arc<Plan>> {
        let config = self.load_config(state)?;
        let plan = policy::resolve_all(&state.registry, &state.policy(&config))?;
        if let Some(path) = &config.lock {
            self.compare(&plan, path)?;
        }
        Ok(self.publish(plan, None))
    }

    fn resolve_part(&self, state: &mut State, changed: &BTreeSet<OpId>) -> Result<Arc<Plan>> {
        let Some(old) = self.plan.load_full() else {
            return self.resolve_fully(state);
        };
        let config = self.load_config(state)?;
        let policy = state.policy(&config);
        let plan = policy::resolve_some(&old, &state.registry, &policy, changed)?;
        let mut rewritten = changed.clone();
        rewritten.extend((old.len()..plan.len()).map(OpId::from_index));
        Ok(self.publish(plan, Some(&rewritten)))
    }

    /// Publishes a plan and rewrites slots: all, or the given ones. Called under the state's lock.
    fn publish(&self, plan: Plan, only: Option<&BTreeSet<OpId>>) -> Arc<Plan> {
        let plan = Arc::new(plan);
        // First the plan, so that whoever meets a blocked slot finds the reason in it.
        self.plan.store(Some(Arc::clone(&plan)));
        let flags = flags(&plan);
        let rewrite = |entry: &policy::PlanEntry| {
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
        plan
    }
}

impl State {
    fn policy(&self, config: &Config) -> Policy {
        let detected = Layer {
            vendor: self.vendor.clone().map(Sourced::built_in),
            ..Layer::default()
        };
        let contexts = self.contexts.iter().map(|(_, layer)| layer);
        let layers = std::iter::once(&detected)
            .chain(&config.layers)
            .chain(std::iter::once(&self.api))
            .chain(contexts);
        Policy::from_layers(layers)
    }

    fn scope_of<'p>(&self, patterns: impl IntoIterator<Item = &'p OpPattern>) -> Scope {
        Scope::Ops(policy::matched(&self.registry, patterns))
    }
}

fn flags(plan: &Plan) -> u32 {
    match plan.policy().log_dispatch.value {
        true => FLAG_LOG_DISPATCH,
        false => 0,
    }
}

fn parse_route(op: &str, selectors: &str) -> Result<(OpPattern, Vec<Selector>)> {
    let pattern = OpPattern::parse(op)?;
    let selectors = Selector::parse_list(selectors).map_err(|error| {
        Error::config("set_route", error.message)
            .with_context("operator", &pattern)
            .with_hint(error.hint)
    })?;
    Ok((pattern, selectors))
}

/// Names of implementations, vendors and backends must be writable in every configuration grammar.
fn check_impl(implementation: &Impl) -> Result<()> {
    let names = [
        ("implementation id", Some(&implementation.impl_id)),
        ("vendor", implementation.vendor.as_ref()),
        ("backend", Some(&implementation.backend)),
    ];
    for (what, name) in names {
        if let Some(name) = name.filter(|name| !valid_name(name)) {
            let message = format!("`{name}` is not a valid {what}");
            return Err(Error::invalid_argument("register", message)
                .with_hint("use letters, digits and any of `_.-/`"));
        }
    }
    Ok(())
}
