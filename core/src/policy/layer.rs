//! Layers of configuration, and the policy that they are merged into.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pattern::OpPattern;
use super::selector::Selector;
use super::source::{Source, Sourced};
use crate::registry::Kind;

/// The alternatives of a route, the best first, and the route's source.
pub type Route = Sourced<Vec<Selector>>;

/// The settings of one namespace, which replace the general ones there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scoped {
    /// Alternatives for operators that have no route of their own.
    pub order: Option<Route>,
    /// Vendors that must not be used.
    pub deny_vendors: Option<Sourced<Vec<Arc<str>>>>,
    /// The only vendors that may be used.
    pub allow_vendors: Option<Sourced<Vec<Arc<str>>>>,
    /// Whether a fallback is an error.
    pub strict: Option<Sourced<bool>>,
}

/// One layer of configuration, in which every setting is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    /// Alternatives for operators that have no route of their own.
    pub order: Option<Route>,
    /// Routes of operators, in the order of the text: a later route beats an earlier one of the same form, and a
    /// route for the exact name of an operator beats `name.*`.
    pub ops: Vec<(OpPattern, Route)>,
    /// Vendors that must not be used.
    pub deny_vendors: Option<Sourced<Vec<Arc<str>>>>,
    /// The only vendors that may be used.
    pub allow_vendors: Option<Sourced<Vec<Arc<str>>>>,
    /// Whether a route that cannot be followed, and a CPU fallback, are errors.
    pub strict: Option<Sourced<bool>>,
    /// How many CPU fallbacks are allowed; the inner `None` means any number.
    pub max_cpu_fallback: Option<Sourced<Option<u64>>>,
    /// Whether every dispatch is logged.
    pub log_dispatch: Option<Sourced<bool>>,
    /// Whether every fallback is logged.
    pub log_fallback: Option<Sourced<bool>>,
    /// Whether calls that repeat are launched by automatic graphs.
    pub graphs: Option<Sourced<bool>>,
    /// Whether a second thread hands calls to the vendor's library.
    pub queue: Option<Sourced<bool>>,
    /// Whether FlagGems is kept out of every route.
    pub disable_flaggems: Option<Sourced<bool>>,
    /// The active vendor, which the selector `vendor` means.
    pub vendor: Option<Sourced<Arc<str>>>,
    /// Settings for single namespaces.
    pub namespaces: BTreeMap<Arc<str>, Scoped>,
}

impl Layer {
    /// Adds a route.
    pub fn route(&mut self, pattern: OpPattern, selectors: Vec<Selector>, source: Source) {
        self.ops.push((pattern, Sourced::new(selectors, source)));
    }

    /// Puts `other` on top of this layer, as if it were written behind this one.
    pub fn overlay(&mut self, other: Self) {
        fn take<T>(mine: &mut Option<T>, other: Option<T>) {
            if other.is_some() {
                *mine = other;
            }
        }
        for (namespace, scoped) in other.namespaces {
            let mine = self.namespaces.entry(namespace).or_default();
            take(&mut mine.order, scoped.order);
            take(&mut mine.deny_vendors, scoped.deny_vendors);
            take(&mut mine.allow_vendors, scoped.allow_vendors);
            take(&mut mine.strict, scoped.strict);
        }
        take(&mut self.order, other.order);
        take(&mut self.deny_vendors, other.deny_vendors);
        take(&mut self.allow_vendors, other.allow_vendors);
        take(&mut self.strict, other.strict);
        take(&mut self.max_cpu_fallback, other.max_cpu_fallback);
        take(&mut self.log_dispatch, other.log_dispatch);
        take(&mut self.log_fallback, other.log_fallback);
        take(&mut self.graphs, other.graphs);
        take(&mut self.queue, other.queue);
        take(&mut self.disable_flaggems, other.disable_flaggems);
        take(&mut self.vendor, other.vendor);
        self.ops.extend(other.ops);
    }
}

/// The merged layers, by which [`resolve_all`](super::resolve_all) decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Alternatives for operators that have no route of their own.
    pub order: Route,
    /// The routes of each layer, the weakest layer first.
    pub ops: Vec<Vec<(OpPattern, Route)>>,
    /// Vendors that must not be used, whatever a route says.
    pub deny_vendors: Sourced<Vec<Arc<str>>>,
    /// The only vendors that may be used.
    pub allow_vendors: Option<Sourced<Vec<Arc<str>>>>,
    /// Whether a route that cannot be followed, and a CPU fallback, are errors.
    pub strict: Sourced<bool>,
    /// How many CPU fallbacks are allowed.
    pub max_cpu_fallback: Sourced<Option<u64>>,
    /// Whether every dispatch is logged.
    pub log_dispatch: Sourced<bool>,
    /// Whether every fallback is logged.
    pub log_fallback: Sourced<bool>,
    /// Whether calls that repeat are launched by automatic graphs.
    pub graphs: Sourced<bool>,
    /// Whether a second thread hands calls to the vendor's library.
    pub queue: Sourced<bool>,
    /// Whether FlagGems is kept out of every route.
    pub disable_flaggems: Sourced<bool>,
    /// The active vendor; `None` before one is chosen, when the selector `vendor` means any vendor.
    pub vendor: Option<Sourced<Arc<str>>>,
    /// The settings of single namespaces, where they differ from the general ones.
    pub namespaces: BTreeMap<Arc<str>, Scoped>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            order: Sourced::built_in(Kind::ALL.map(Selector::Kind).to_vec()),
            ops: Vec::new(),
            deny_vendors: Sourced::built_in(Vec::new()),
            allow_vendors: None,
            strict: Sourced::built_in(false),
            max_cpu_fallback: Sourced::built_in(None),
            log_dispatch: Sourced::built_in(false),
            log_fallback: Sourced::built_in(false),
            graphs: Sourced::built_in(false),
            queue: Sourced::built_in(false),
            disable_flaggems: Sourced::built_in(false),
            vendor: None,
            namespaces: BTreeMap::new(),
        }
    }
}

impl Policy {
    /// Whether a fallback is an error for the operators of a namespace.
    #[must_use]
    pub fn strict_in(&self, namespace: &str) -> &Sourced<bool> {
        let scoped = self.namespaces.get(namespace);
        scoped
            .and_then(|scoped| scoped.strict.as_ref())
            .unwrap_or(&self.strict)
    }

    /// Puts a layer's settings for single namespaces on top. A layer's general setting beats weaker layers'
    /// settings for single namespaces.
    fn overlay_namespaces(&mut self, layer: &Layer) {
        for scoped in self.namespaces.values_mut() {
            if layer.order.is_some() {
                scoped.order = None;
            }
            if layer.deny_vendors.is_some() {
                scoped.deny_vendors = None;
            }
            if layer.allow_vendors.is_some() {
                scoped.allow_vendors = None;
            }
            if layer.strict.is_some() {
                scoped.strict = None;
            }
        }
        let only = Layer {
            namespaces: layer.namespaces.clone(),
            ..Layer::default()
        };
        let mut merged = Layer {
            namespaces: std::mem::take(&mut self.namespaces),
            ..Layer::default()
        };
        merged.overlay(only);
        self.namespaces = merged.namespaces;
    }

    /// Puts layers on top of the built-in defaults, the weakest first.
    pub fn from_layers<'a>(layers: impl IntoIterator<Item = &'a Layer>) -> Self {
        fn take<T: Clone>(mine: &mut T, layer: &Option<T>) {
            if let Some(value) = layer {
                *mine = value.clone();
            }
        }
        let mut policy = Self::default();
        for layer in layers {
            take(&mut policy.order, &layer.order);
            take(&mut policy.deny_vendors, &layer.deny_vendors);
            take(&mut policy.strict, &layer.strict);
            take(&mut policy.max_cpu_fallback, &layer.max_cpu_fallback);
            take(&mut policy.log_dispatch, &layer.log_dispatch);
            take(&mut policy.log_fallback, &layer.log_fallback);
            take(&mut policy.graphs, &layer.graphs);
            take(&mut policy.queue, &layer.queue);
            take(&mut policy.disable_flaggems, &layer.disable_flaggems);
            if layer.allow_vendors.is_some() {
                policy.allow_vendors.clone_from(&layer.allow_vendors);
            }
            if layer.vendor.is_some() {
                policy.vendor.clone_from(&layer.vendor);
            }
            policy.overlay_namespaces(layer);
            if !layer.ops.is_empty() {
                policy.ops.push(layer.ops.clone());
            }
        }
        policy
    }
}
