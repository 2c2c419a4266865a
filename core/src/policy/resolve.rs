//! Pure functions that make a plan of a registry and a policy.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::backends_conf::is_left_to_torch;
use super::layer::{Layer, Policy, Route, Scoped};
use super::pattern::OpPattern;
use super::plan::{Plan, PlanEntry, PlannedImplementation, Reason};
use super::print;
use super::selector::{Selector, is_flaggems};
use super::source::{Source, Sourced};
use crate::nearest;
use crate::registry::{Availability, Implementation, Kind, Namespace, Op, OpId, Registry};
use crate::{Error, Result};

/// Decides every operator. The same registry and policy always give the same plan.
///
/// Fails when the policy names an operator, implementation or vendor that does not exist, and in
/// strict mode when a route cannot be followed.
pub fn resolve_all(registry: &Registry, policy: &Policy) -> Result<Plan> {
    let compiled = Compiled::new(registry, policy, Check::Everything)?;
    let entries = registry.iter().map(|(id, op)| compiled.resolve(id, op));
    let entries: Vec<_> = entries.map(Arc::new).collect();
    compiled.check_strict(entries.iter().map(AsRef::as_ref))?;
    Ok(compiled.plan(entries, registry))
}

/// Decides `changed` operators again, and those interned since `plan` was made, and keeps the rest of `plan`.
/// The result equals that of [`resolve_all`] as long as nothing else has changed since.
///
/// Does not check the names in the policy: while a namespace is registered operator by operator, a route may
/// be for an operator that is still to come.
pub(crate) fn resolve_some(
    plan: &Plan,
    registry: &Registry,
    policy: &Policy,
    changed: &BTreeSet<OpId>,
) -> Result<Plan> {
    let compiled = Compiled::new(registry, policy, Check::Nothing)?;
    let mut entries = plan.entries.clone();
    let known = entries.len();
    let changed = changed.iter().copied().filter(|id| id.index() < known);
    for id in changed.clone() {
        entries[id.index()] = Arc::new(compiled.resolve(id, registry.op(id)));
    }
    for id in (known..registry.len()).map(OpId::from_index) {
        entries.push(Arc::new(compiled.resolve(id, registry.op(id))));
    }
    let decided = changed.map(OpId::index).chain(known..entries.len());
    compiled.check_strict(decided.map(|index| &*entries[index]))?;
    Ok(compiled.plan(entries, registry))
}

/// Decides one operator as [`resolve_all`] does. Does not check the names in the policy.
pub fn resolve_one(registry: &Registry, policy: &Policy, id: OpId) -> Result<PlanEntry> {
    let compiled = Compiled::new(registry, policy, Check::Nothing)?;
    Ok(compiled.resolve(id, registry.op(id)))
}

/// Checks every name in a policy against the registered ones.
pub fn check(registry: &Registry, policy: &Policy) -> Result<()> {
    Compiled::new(registry, policy, Check::Everything).map(drop)
}

/// The operators that the patterns of one layer match.
pub(crate) fn matched<'p>(
    registry: &Registry,
    patterns: impl IntoIterator<Item = &'p OpPattern>,
) -> BTreeSet<OpId> {
    let found = patterns.into_iter().filter_map(|p| p.find(registry).ok());
    found.flatten().collect()
}

/// Checks every name in a layer against the registered ones.
pub(crate) fn check_layer(registry: &Registry, layer: &Layer) -> Result<()> {
    let policy = Policy::from_layers([layer]);
    Compiled::new(registry, &policy, Check::Everything).map(|_| ())
}

/// The names of a policy that must exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Everything,
    Nothing,
}

/// The settings and rules for the operators of one namespace.
struct View<'p> {
    order: Arc<Route>,
    deny_vendors: &'p Sourced<Vec<Arc<str>>>,
    allow_vendors: Option<&'p Sourced<Vec<Arc<str>>>>,
    rules: Namespace,
}

impl<'p> View<'p> {
    fn new(policy: &'p Policy, scoped: Option<&'p Scoped>, rules: Namespace) -> Self {
        let order = scoped.and_then(|s| s.order.as_ref());
        let deny = scoped.and_then(|s| s.deny_vendors.as_ref());
        let allow = scoped.and_then(|s| s.allow_vendors.as_ref());
        Self {
            order: Arc::new(order.unwrap_or(&policy.order).clone()),
            deny_vendors: deny.unwrap_or(&policy.deny_vendors),
            allow_vendors: allow.or(policy.allow_vendors.as_ref()),
            rules,
        }
    }
}

/// A policy with its names looked up in a registry.
struct Compiled<'p> {
    policy: &'p Policy,
    elsewhere: View<'p>,
    views: HashMap<Arc<str>, View<'p>>,
    routes: HashMap<OpId, Arc<Route>>,
    unmatched: Vec<(String, Source)>,
    /// The errors in lines that are left out.
    left: Vec<Error>,
}

impl<'p> Compiled<'p> {
    fn new(registry: &Registry, policy: &'p Policy, check: Check) -> Result<Self> {
        let named = policy.namespaces.keys().chain(registry.namespace_names());
        let view = |name: &Arc<str>| {
            let scoped = policy.namespaces.get(name);
            let view = View::new(policy, scoped, registry.namespace(name));
            (Arc::clone(name), view)
        };
        let mut compiled = Self {
            policy,
            elsewhere: View::new(policy, None, Namespace::default()),
            views: named.map(view).collect(),
            routes: HashMap::new(),
            unmatched: Vec::new(),
            left: Vec::new(),
        };
        let mut names: Option<Names> =
            (check == Check::Everything).then(|| Names::new(registry, policy));
        if let Some(names) = names.as_mut().filter(|_| !registry.is_empty()) {
            names.check_vendors(policy)?;
            names.check_route(&policy.order)?;
            for (name, scoped) in &policy.namespaces {
                // Plugins of the namespace may still register vendors of their own.
                if registry.is_implemented(name) {
                    names.check_scoped(scoped)?;
                }
            }
        }
        for layer in &policy.ops {
            // Wildcards come first, because within a layer a route for the exact name of an operator beats them.
            let (wildcards, exact): (Vec<_>, Vec<_>) = layer
                .iter()
                .partition(|(pattern, _)| matches!(pattern, OpPattern::Overloads(_)));
            for (pattern, route) in wildcards.into_iter().chain(exact) {
                compiled.add(registry, pattern, route, names.as_mut())?;
            }
        }
        // Generated files have a hundred such lines.
        if let Some((first, others)) = compiled.left.split_first() {
            tell_without_effect(&match others.len() {
                0 => format!("a line without effect: {first}"),
                more => format!("a line without effect, and {more} more: {first}"),
            });
        }
        Ok(compiled)
    }

    fn add(
        &mut self,
        registry: &Registry,
        pattern: &OpPattern,
        route: &Route,
        names: Option<&mut Names>,
    ) -> Result<()> {
        let mut found = match (pattern.find(registry), &names) {
            (Err(_), Some(_))
                if self.forgives(&route.source) && is_left(registry, &pattern.to_string()) =>
            {
                let message = format!("`{pattern}` is not registered here: torch serves it");
                let error_in_operator = Error::config("operator", message);
                self.left.push(located(&error_in_operator, &route.source));
                return Ok(());
            }
            (Err(error), Some(_)) => return Err(located(&error, &route.source)),
            (Err(_), None) => Vec::new(),
            (Ok(found), _) => found,
        };
        if found.is_empty() {
            let unmatched = (pattern.to_string(), route.source.clone());
            self.unmatched.push(unmatched);
            return Ok(());
        }
        if let Some(names) = names {
            names.check_route(route)?;
        }
        let followed =
            |id: &OpId| !registry.op(*id).composite || self.serves(registry.op(*id), route);
        let decomposed = found.iter().copied().find(|id| !followed(id));
        // `softmax.*` is a route for those overloads that can be routed.
        if matches!(pattern, OpPattern::Overloads(_)) {
            found.retain(followed);
        }
        if let Some(id) = decomposed.filter(|id| found.is_empty() || found.contains(id)) {
            let error = composite(&registry.op(id).name, &route.source);
            if !self.forgives(&route.source) {
                return Err(error);
            }
            tell_without_effect(&format!("a line without effect: {error}"));
            found.retain(followed);
        }
        let route = Arc::new(route.clone());
        for id in found {
            self.routes.insert(id, Arc::clone(&route));
        }
        Ok(())
    }

    /// Whether a route of an operator that cannot be routed is left out: the files of PyTorch-Plugin-FL name operators
    /// that it registers and flagos leaves to torch.
    fn forgives(&self, source: &Source) -> bool {
        !self.policy.strict.value && source.is_backends_conf()
    }

    fn view(&self, op: &Op) -> &View<'p> {
        let namespace = op
            .name
            .split_once("::")
            .map_or("", |(namespace, _)| namespace);
        self.views.get(namespace).unwrap_or(&self.elsewhere)
    }

    fn resolve(&self, id: OpId, op: &Op) -> PlanEntry {
        let view = self.view(op);
        let routed = self.routes.get(&id);
        let route = Arc::clone(routed.unwrap_or(&view.order));
        let unusable: Vec<_> = op
            .implementations
            .iter()
            .map(|i| self.unusable(view, i))
            .collect();
        let named: Vec<_> = op
            .implementations
            .iter()
            .map(|i| match (&i.on_request, routed) {
                (Some(_), None) => None,
                _ => route.value.iter().position(|s| s.names(i)),
            })
            .collect();
        // The total order: the earliest alternative, then the highest priority, then the id.
        let usable = (0..op.implementations.len()).filter(|&i| unusable[i].is_none());
        let mut ranked: Vec<_> = usable
            .filter_map(|i| named[i].map(|alternative| (i, alternative)))
            .collect();
        ranked.sort_by(|&(a, first), &(b, second)| {
            let (one, other) = (&op.implementations[a], &op.implementations[b]);
            let ids = one.impl_id.cmp(&other.impl_id);
            let ids = if view.rules.last_id_wins {
                ids.reverse()
            } else {
                ids
            };
            let priorities = other.priority.cmp(&one.priority);
            first.cmp(&second).then(priorities).then(ids)
        });
        let winner = ranked.first().copied();
        let verdicts = unusable.into_iter().zip(named).enumerate();
        let implementations = verdicts.map(|(i, (unusable, alternative))| {
            let lost = match (winner, unusable, alternative) {
                (Some((winner, _)), _, _) if winner == i => None,
                (_, Some(reason), _) => Some(reason),
                (Some((_, best)), None, Some(mine)) if mine == best => Some(Reason::LowerPriority),
                (_, None, Some(mine)) => Some(Reason::LaterAlternative(route.value[mine].clone())),
                (_, None, None) => Some(match (&op.implementations[i].on_request, routed) {
                    (Some(reason), None) => Reason::OnRequest(Arc::clone(reason)),
                    _ => Reason::NotNamed,
                }),
            };
            PlannedImplementation {
                implementation: Arc::clone(&op.implementations[i]),
                lost,
                rank: ranked.iter().position(|(ranked, _)| *ranked == i),
            }
        });
        PlanEntry {
            op: Arc::clone(&op.name),
            slot: op.slot,
            explicit: routed.is_some(),
            composite: op.composite,
            implementations: implementations.collect(),
            winner,
            route,
        }
    }

    /// The reason why an implementation must not be used, whatever the route says.
    fn unusable(&self, view: &View, implementation: &Implementation) -> Option<Reason> {
        let policy = self.policy;
        if let Availability::Unavailable(reason) = &implementation.availability {
            return Some(Reason::Unavailable(Arc::clone(reason)));
        }
        if policy.disable_flaggems.value && is_flaggems(implementation) {
            let source = policy.disable_flaggems.source.clone();
            return Some(Reason::FlagGemsDisabled(source));
        }
        let vendor = implementation.vendor.as_ref()?;
        if view.deny_vendors.value.contains(vendor) {
            return Some(Reason::VendorDenied(view.deny_vendors.source.clone()));
        }
        if let Some(allowed) = view.allow_vendors {
            if !allowed.value.contains(vendor) {
                return Some(Reason::VendorNotAllowed(allowed.source.clone()));
            }
        }
        match &policy.vendor {
            _ if view.rules.any_device => None,
            // Tensors live on the active vendor's devices. A reference copies them, so that it serves any vendor.
            Some(active) if active.value != *vendor && implementation.kind != Kind::Reference => {
                Some(Reason::VendorInactive(Arc::clone(&active.value)))
            }
            _ => None,
        }
    }

    /// Whether an implementation of `op` can follow `route`.
    fn serves(&self, op: &Op, route: &Route) -> bool {
        let named = |i: &Implementation| route.value.iter().any(|selector| selector.names(i));
        let view = self.view(op);
        let mut implementations = op.implementations.iter();
        implementations.any(|i| self.unusable(view, i).is_none() && named(i))
    }

    fn check_strict<'e>(&self, entries: impl Iterator<Item = &'e PlanEntry>) -> Result<()> {
        if !self.policy.strict.value {
            return Ok(());
        }
        let mut blocked = entries.filter(|entry| entry.explicit && entry.winner.is_none());
        let Some(first) = blocked.next() else {
            return Ok(());
        };
        let mut lines = vec![first.explain().to_string()];
        lines.extend(blocked.map(|entry| entry.explain().to_string()));
        let others = match lines.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let reason = first.blocked_reason().unwrap_or_default();
        Err(Error::config("resolve", format!("{reason}{others}"))
            .with_context("strict", &self.policy.strict.source)
            .with_hint("correct the route, add another alternative, or leave strict mode")
            .with_detail(lines.join("\n")))
    }

    fn plan(self, entries: Vec<Arc<PlanEntry>>, registry: &Registry) -> Plan {
        Plan {
            entries,
            index: Arc::clone(registry.index()),
            policy: Arc::new(self.policy.clone()),
            unmatched: self.unmatched,
        }
    }
}

/// An error about a name, with the place where the name was written.
fn located(error: &Error, source: &Source) -> Error {
    let located = Error::config("configuration", error.message()).with_context("at", source);
    match error.hint() {
        Some(hint) => located.with_hint(hint),
        None => located,
    }
}

/// Warns of a line that was left out, once in a process: plans are made again and again.
fn tell_without_effect(line: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if TOLD.lock().insert(line.to_owned()) {
        tracing::warn!("{line}");
    }
}

/// Whether torch serves an operator that no adapter registers here.
fn is_left(registry: &Registry, op: &str) -> bool {
    is_left_to_torch(op) || registry.is_left_to_framework(op)
}

/// The error for a route of a decomposed operator, which would run whatever the route says.
fn composite(op: &str, source: &Source) -> Error {
    let message = format!(
        "`{op}` cannot be routed: it is composite, torch decomposes it into other operators"
    );
    Error::config("configuration", message)
        .with_context("at", source)
        .with_hint("route those instead; FLAGOS_LOG_DISPATCH=1 shows which ones are called")
}

/// The names of implementations and vendors, gathered when a policy first uses one.
struct Names<'r> {
    registry: &'r Registry,
    active: Option<&'r str>,
    known: Option<(BTreeSet<&'r str>, BTreeSet<&'r str>)>,
}

impl<'r> Names<'r> {
    fn new(registry: &'r Registry, policy: &'r Policy) -> Self {
        Self {
            registry,
            active: policy.vendor.as_ref().map(|vendor| &*vendor.value),
            known: None,
        }
    }

    /// The ids of implementations, and the names of vendors.
    fn known(&mut self) -> &(BTreeSet<&'r str>, BTreeSet<&'r str>) {
        let (registry, active) = (self.registry, self.active);
        self.known.get_or_insert_with(|| {
            let mut ids = BTreeSet::new();
            let mut vendors: BTreeSet<_> = registry.vendors().all().chain(active).collect();
            for (_, op) in registry.iter() {
                for implementation in &op.implementations {
                    ids.insert(&*implementation.impl_id);
                    vendors.extend(implementation.vendor.as_deref());
                }
            }
            (ids, vendors)
        })
    }

    fn check_vendors(&mut self, policy: &Policy) -> Result<()> {
        self.check_lists([Some(&policy.deny_vendors), policy.allow_vendors.as_ref()])
    }

    fn check_scoped(&mut self, scoped: &Scoped) -> Result<()> {
        self.check_lists([scoped.deny_vendors.as_ref(), scoped.allow_vendors.as_ref()])?;
        match &scoped.order {
            Some(order) => self.check_route(order),
            None => Ok(()),
        }
    }

    fn check_lists(&mut self, lists: [Option<&Sourced<Vec<Arc<str>>>>; 2]) -> Result<()> {
        for Sourced { value, source } in lists.into_iter().flatten() {
            for vendor in value {
                self.vendor(vendor, source)?;
            }
        }
        Ok(())
    }

    fn vendor(&mut self, vendor: &str, source: &Source) -> Result<()> {
        unknown("vendor", vendor, &self.known().1, source)
    }

    fn check_route(&mut self, route: &Route) -> Result<()> {
        for selector in &route.value {
            match selector {
                Selector::Vendor(vendor) => self.vendor(vendor, &route.source)?,
                Selector::Implementation(id) => {
                    unknown("implementation", id, &self.known().0, &route.source)
                        .map_err(|error| error.with_context("route", print::join(&route.value)))?;
                }
                Selector::Kind(_) | Selector::Backend(_) => {}
            }
        }
        Ok(())
    }
}

fn unknown(what: &str, name: &str, known: &BTreeSet<&str>, source: &Source) -> Result<()> {
    if known.contains(name) {
        return Ok(());
    }
    let error = Error::config("configuration", format!("unknown {what} `{name}`"));
    let error = error.with_context("at", source);
    Err(match nearest::hint(name, known.iter().copied()) {
        Some(hint) => error.with_hint(hint),
        None => error.with_hint(format!("register the {what} first, or remove the name")),
    })
}
