//! The router: a registry, the configuration, and the plan they make.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::fallbacks::FallbackLedger;
use super::scope::{Lock, Scope, flags};
use crate::descriptions::Names;
use crate::env::Env;
use crate::policy::{
    Config, Disk, Explanation, Files, Layer, Plan, remedy, valid_name, vendor_path,
};
use crate::registry::{Availability, Implementation, Namespace, OpSlot, Registry};
use crate::{Error, Result};

/// The registry, the configuration and the published plan. [`global`](super::global) is the one of
/// the process; tests make their own.
///
/// The configuration is read when the plan is first resolved. Before that, registrations and routes are only
/// collected; afterwards each change is resolved and published at once, or refused and undone.
pub struct Router {
    pub(super) state: Mutex<State>,
    pub(super) plan: ArcSwapOption<Plan>,
    pub(super) fallbacks: FallbackLedger,
    /// Told of every change; see [`Router::when_changed`].
    pub(super) changed: OnceLock<fn()>,
    env: Box<dyn Fn() -> Env + Send + Sync>,
    files: Box<dyn Files>,
    vendors: FindVendors,
}

/// Finds the vendors that the places of `FLAGOS_VENDOR_PATH` tell of, and returns the names of all.
pub type FindVendors = fn(&[PathBuf]) -> Result<Arc<Names>>;

/// How the router of the process finds vendors, submitted with `inventory` by what is above the router.
pub struct Discovery(pub FindVendors);

inventory::collect!(Discovery);

#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) registry: Registry,
    pub(super) config: Option<Arc<Config>>,
    /// Whether the registry has the names of the vendors that are found.
    vendors_known: bool,
    /// Warnings that were logged, by which each is logged once, however often the configuration is read.
    logged: BTreeSet<String>,
    shipped: Option<PathBuf>,
    /// The vendor the runtime found.
    pub(super) vendor: Option<Arc<str>>,
    /// Layers set by calls of an adapter's API, in the place of its variables.
    pub(super) adapters: BTreeMap<&'static str, Layer>,
    pub(super) api: Layer,
    pub(super) contexts: Vec<(ContextToken, Layer)>,
    pub(super) last_token: u64,
}

/// The name of a context that was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContextToken(pub u64);

impl Router {
    /// A router that reads its variables from `env` each time it (re)loads the configuration, and
    /// its files from `files`. Its configuration may name the vendors of this build.
    pub fn new(env: impl Fn() -> Env + Send + Sync + 'static, files: impl Files + 'static) -> Self {
        Self::with_vendors(env, files, |_| Ok(Names::built_in()))
    }

    /// As [`Self::new`], with the vendors that are found.
    pub fn with_vendors(
        env: impl Fn() -> Env + Send + Sync + 'static,
        files: impl Files + 'static,
        vendors: FindVendors,
    ) -> Self {
        Self {
            state: Mutex::default(),
            plan: ArcSwapOption::empty(),
            fallbacks: FallbackLedger::default(),
            changed: OnceLock::new(),
            env: Box::new(env),
            files: Box::new(files),
            vendors,
        }
    }

    pub(super) fn of_process() -> Self {
        match inventory::iter::<Discovery>().next() {
            Some(Discovery(find)) => Self::with_vendors(Env::from_process, Disk, *find),
            None => Self::new(Env::from_process, Disk),
        }
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

    /// Names of operators that start with `prefix`, sorted, without those that are decomposed.
    #[must_use]
    pub fn ops(&self, prefix: &str) -> Vec<Arc<str>> {
        let state = self.state.lock();
        let ops = state.registry.iter().map(|(_, op)| op);
        let names = ops.filter(|op| !op.is_decomposed()).map(|op| &op.name);
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
    pub fn register(&self, op: &str, implementation: Implementation) -> Result<()> {
        check_names(&implementation)?;
        let implementation = Arc::new(implementation);
        self.change(|state| {
            let id = state.registry.register(op, implementation)?;
            Ok((Scope::Ops(BTreeSet::from([id])), ()))
        })
    }

    /// Registers one implementation for every operator named, all or none. `names` are without
    /// the namespace: `add.Tensor`.
    pub fn register_all<N: AsRef<str>>(
        &self,
        namespace: &str,
        names: impl IntoIterator<Item = N>,
        implementation: Implementation,
    ) -> Result<()> {
        check_names(&implementation)?;
        let names = qualified(namespace, names);
        let implementation = Arc::new(implementation);
        self.change(|state| {
            let registry = &mut state.registry;
            let first_of_namespace = !registry.is_implemented(namespace);
            let ids = registry.register_all(&names, &implementation)?;
            // Routes for a new namespace can be checked once its first operator is registered.
            let scope = if first_of_namespace {
                Scope::All
            } else {
                Scope::Ops(ids)
            };
            Ok((scope, ()))
        })
    }

    /// Declares operators that the framework decomposes into other operators as long as they have no
    /// implementation. A route for such an operator could not be followed, and is refused.
    pub fn declare_composite<N: AsRef<str>>(
        &self,
        namespace: &str,
        names: impl IntoIterator<Item = N>,
    ) -> Result<()> {
        let names = qualified(namespace, names);
        self.change(|state| {
            let ids = state.registry.declare_composite(&names)?;
            Ok((Scope::Ops(ids), ()))
        })
    }

    /// Withdraws an implementation. A route that names it blocks its operator from then on.
    pub fn unregister(&self, op: &str, impl_id: &str) -> Result<()> {
        self.change(|state| {
            let id = state.registry.unregister(op, impl_id)?;
            Ok((Scope::Ops(BTreeSet::from([id])), ()))
        })
    }

    /// Changes whether an implementation can be used.
    pub fn set_availability(
        &self,
        op: &str,
        impl_id: &str,
        availability: Availability,
    ) -> Result<()> {
        self.change(|state| {
            let id = state.registry.set_availability(op, impl_id, availability)?;
            Ok((Scope::Ops(BTreeSet::from([id])), ()))
        })
    }

    /// Declares the rules of a namespace.
    pub fn declare_namespace(&self, name: &str, namespace: Namespace) -> Result<()> {
        self.change(|state| {
            state.registry.declare_namespace(name, namespace);
            let prefix = format!("{name}::");
            let ops = state.registry.iter();
            let ids = ops.filter(|(_, op)| op.name.starts_with(&prefix));
            Ok((Scope::Ops(ids.map(|(id, _)| id).collect()), ()))
        })
    }

    // ---- configuration

    /// The configuration of files and variables, which the first call reads.
    pub fn config(&self) -> Result<Arc<Config>> {
        let mut state = self.state.lock();
        self.load_config(&mut state)
    }

    pub(super) fn load_config(&self, state: &mut State) -> Result<Arc<Config>> {
        if let Some(config) = &state.config {
            return Ok(Arc::clone(config));
        }
        let env = (self.env)();
        let names = self.names(state, &env)?;
        let shipped = state.shipped.as_deref();
        let config = Arc::new(Config::load(&env, &*self.files, shipped, &names)?);
        for warning in &config.warnings {
            if state.logged.insert(warning.clone()) {
                tracing::warn!("{warning}");
            }
        }
        state.config = Some(Arc::clone(&config));
        Ok(config)
    }

    /// The names of vendors that configuration may use. Vendors are looked for by the first call, and whenever the
    /// configuration is read.
    pub fn vendor_names(&self) -> Result<Arc<Names>> {
        let mut state = self.state.lock();
        if state.vendors_known {
            Ok(Arc::clone(state.registry.vendors()))
        } else {
            self.names(&mut state, &(self.env)())
        }
    }

    fn names(&self, state: &mut State, env: &Env) -> Result<Arc<Names>> {
        let names = (self.vendors)(&vendor_path(env))?;
        state.registry.set_vendors(Arc::clone(&names));
        state.vendors_known = true;
        Ok(names)
    }

    /// Sets the `backends.conf` of an adapter's package: the weakest layer of configuration, which
    /// `FLAGOS_BACKEND_CONFIG` replaces.
    pub fn set_shipped_config(&self, path: &Path) -> Result<()> {
        self.change(|state| {
            state.shipped = Some(path.to_owned());
            state.config = None;
            Ok((Scope::All, ()))
        })
    }

    /// Sets the operators that an adapter leaves to its framework, by their qualified names: a line of a
    /// `backends.conf` for one of them has no effect.
    pub fn leave_to_framework(&self, names: Vec<String>) -> Result<()> {
        self.change(|state| {
            state.registry.set_left_to_framework(names);
            Ok((Scope::All, ()))
        })
    }

    /// Sets the vendor whose devices the runtime uses.
    pub fn set_active_vendor(&self, vendor: &str) -> Result<()> {
        self.change(|state| {
            state.vendor = Some(vendor.into());
            Ok((Scope::All, ()))
        })
    }

    /// Reads files and variables again. After an error everything stays as it was.
    pub fn reload(&self) -> Result<Arc<Plan>> {
        let mut state = self.state.lock();
        let mut next = state.clone();
        next.config = None;
        let plan = self.resolve_fully(&mut next, Lock::Compared)?;
        *state = next;
        Ok(plan)
    }

    // ---- the plan

    /// Reads the configuration if it has not been read, checks its names against the registered ones, decides
    /// every operator, compares with `FLAGOS_LOCK`, and publishes.
    pub fn resolve(&self) -> Result<Arc<Plan>> {
        let mut state = self.state.lock();
        self.resolve_fully(&mut state, Lock::Compared)
    }

    /// The published plan, with every interned operator. Without a plan the call resolves one.
    pub fn plan(&self) -> Result<Arc<Plan>> {
        let mut state = self.state.lock();
        match self.plan.load_full() {
            Some(plan) if plan.len() == state.registry.len() => Ok(plan),
            Some(_) => self.resolve_part(&mut state, &BTreeSet::new()),
            None => self.resolve_fully(&mut state, Lock::Compared),
        }
    }

    /// The published plan, without resolving.
    #[must_use]
    pub fn published(&self) -> Option<Arc<Plan>> {
        self.plan.load_full()
    }

    /// The plan's explanation of an operator, and what has fallen back of its calls.
    pub fn explain(&self, op: &str) -> Result<Explanation> {
        let mut explanation = self.plan()?.explain(op)?;
        explanation.fallbacks = self.fallbacks.of(&explanation.op);
        Ok(explanation)
    }

    /// The reason why an operator is blocked; `None` when it is not, because its slot has just been rewritten.
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

    pub(super) fn compare(&self, plan: &Plan, path: &Path) -> Result<()> {
        let text = self.files.read(path).map_err(|error| {
            Error::config("lock", format!("cannot read {}: {error}", path.display()))
                .with_hint(remedy(&error, path, "correct the path of the lock file"))
                .with_source(error)
        })?;
        plan.check_lock(&path.display().to_string(), &text)
    }
}

fn qualified<N: AsRef<str>>(namespace: &str, names: impl IntoIterator<Item = N>) -> Vec<String> {
    let names = names.into_iter();
    names
        .map(|name| format!("{namespace}::{}", name.as_ref()))
        .collect()
}

/// Checks that the names of an implementation, its vendor and its backend can be written in every configuration
/// grammar.
fn check_names(implementation: &Implementation) -> Result<()> {
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
