//! The implementations of operators, and their ranking.

use std::sync::Arc;

use flagos_core::descriptions::Names;
use flagos_core::policy::{self, Layer, PlanEntry, Policy};
use flagos_core::registry::{Availability, Callable, Implementation, Namespace, Registry};
use flagos_core::router::{Router, global};
use flagos_core::{Error, Result};
use parking_lot::Mutex;

use crate::NAMESPACE;
use crate::selection::operator;
use crate::vendors::canonical;

/// The rules of this namespace, by which implementations are chosen as in TransformerEngine-FL.
const RULES: Namespace = Namespace {
    last_id_wins: true,
    any_device: true,
};

/// A place that holds implementations. The policy is always that of the process.
pub enum Store {
    /// The router of the process, which holds those of every adapter: `flagos explain` shows them, a lock file
    /// covers them.
    Process(&'static Router),
    /// A registry that a program made for itself.
    Own(Mutex<Registry>),
}

/// The ranking of the implementations of one operator under a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranking {
    /// The usable implementations, the chosen one first, as ids with the tokens of their functions.
    pub usable: Vec<(Arc<str>, Option<u64>)>,
    /// Whether a failure is raised instead of trying the next implementation.
    pub strict: bool,
    /// The reason, when no implementation is usable.
    pub blocked: Option<String>,
}

impl Store {
    /// The implementations of the process.
    ///
    /// # Errors
    /// When the registered implementations cannot follow the configuration.
    pub fn process() -> Result<Self> {
        let router = global();
        router.declare_namespace(NAMESPACE, RULES)?;
        Ok(Self::Process(router))
    }

    /// A store for implementations apart from the process's.
    ///
    /// # Errors
    /// When vendors cannot be looked for, because the configuration is wrong.
    pub fn own() -> Result<Self> {
        let mut registry = Registry::new();
        registry.set_vendors(global().vendor_names()?);
        registry.declare_namespace(NAMESPACE, RULES);
        Ok(Self::Own(Mutex::new(registry)))
    }

    /// Registers an implementation.
    ///
    /// # Errors
    /// When the operator has an implementation of that id, or a name is not valid.
    pub fn register(&self, op: &str, implementation: Implementation) -> Result<()> {
        let op = operator(op)?;
        match self {
            Self::Process(router) => router.register(&op, implementation),
            Self::Own(registry) => {
                let mut registry = registry.lock();
                registry.register(&op, Arc::new(implementation)).map(drop)
            }
        }
    }

    /// Withdraws an implementation and returns the token of its function.
    ///
    /// # Errors
    /// When there is none of that id.
    pub fn unregister(&self, op: &str, impl_id: &str) -> Result<Option<u64>> {
        let op = operator(op)?;
        match self {
            Self::Process(router) => {
                let token = router.registry().token(&op, impl_id);
                router.unregister(&op, impl_id).map(|()| token)
            }
            Self::Own(registry) => {
                let mut registry = registry.lock();
                let token = registry.token(&op, impl_id);
                registry.unregister(&op, impl_id).map(|_| token)
            }
        }
    }

    /// Changes whether an implementation can be used; `reason` says why it cannot.
    ///
    /// # Errors
    /// When there is none of that id.
    pub fn set_availability(&self, op: &str, impl_id: &str, reason: Option<&str>) -> Result<()> {
        let op = operator(op)?;
        let availability = match reason {
            None => Availability::Available,
            Some(reason) => Availability::Unavailable(reason.into()),
        };
        match self {
            Self::Process(router) => router.set_availability(&op, impl_id, availability),
            Self::Own(registry) => {
                let mut registry = registry.lock();
                registry
                    .set_availability(&op, impl_id, availability)
                    .map(drop)
            }
        }
    }

    /// The ranking of an operator's implementations under a policy.
    ///
    /// # Errors
    /// When the operator is not known.
    pub fn rank(&self, op: &str, policy: &Policy) -> Result<Ranking> {
        let op = operator(op)?;
        let rank = |registry: &Registry| {
            let entry = policy::resolve_one(registry, policy, registry.require(&op)?)?;
            Ok(Ranking::new(&entry, policy.strict_in(NAMESPACE).value))
        };
        match self {
            Self::Process(router) => rank(&router.registry()),
            Self::Own(registry) => rank(&registry.lock()),
        }
    }

    /// The ranking of an operator's implementations in the published plan.
    ///
    /// # Errors
    /// When the operator is not known, or the configuration is wrong.
    pub fn rank_as_planned(&self, op: &str) -> Result<Ranking> {
        let Self::Process(router) = self else {
            return self.rank(op, &policy(None)?);
        };
        let plan = router.plan()?;
        let strict = plan.policy().strict_in(NAMESPACE).value;
        Ok(Ranking::new(plan.find(&operator(op)?)?, strict))
    }

    /// Checks every name in a policy against the registered ones.
    ///
    /// # Errors
    /// [`flagos_core::ErrorKind::Config`] with the place of a name that does not exist.
    pub fn check(&self, policy: &Policy) -> Result<()> {
        match self {
            Self::Process(router) => router.resolve().map(drop),
            Self::Own(registry) => policy::check(&registry.lock(), policy),
        }
    }
}

/// The policy of the process. `over` stands in for the layer of this adapter's variables, or of
/// [`Router::set_adapter_layer`].
///
/// # Errors
/// When a file or a variable is wrong.
pub fn policy(over: Option<&Layer>) -> Result<Policy> {
    global().policy_over(over.map(|layer| (NAMESPACE, layer)))
}

impl Ranking {
    fn new(entry: &PlanEntry, strict: bool) -> Self {
        let usable = entry.ranked().into_iter();
        Self {
            usable: usable
                .map(|i| (Arc::clone(&i.impl_id), i.callable.token()))
                .collect(),
            strict,
            blocked: if entry.implementations.is_empty() {
                Some(format!("{} has no implementation", entry.op))
            } else {
                entry.blocked_reason()
            },
        }
    }
}

/// An implementation, in the form in which this adapter registers it.
///
/// # Errors
/// For an unknown kind, and for a vendor that is not known by one name.
pub fn describe(
    impl_id: &str,
    kind: &str,
    vendor: Option<&str>,
    priority: i32,
    function: u64,
    names: &Names,
) -> Result<Implementation> {
    use flagos_core::registry::Kind;
    let Some(kind) = Kind::parse(kind) else {
        let message = format!("`{kind}` is not a kind of implementation");
        return Err(Error::invalid_argument("register_impl", message)
            .with_hint("use `flagos`, `vendor` or `reference`"));
    };
    let vendor = vendor.map(|name| canonical(name, names)).transpose()?;
    let backend = vendor.as_deref().unwrap_or(kind.as_str());
    let mut implementation = Implementation::new(impl_id, kind, backend)
        .priority(priority)
        .callable(Callable::Foreign(function));
    if let Some(vendor) = &vendor {
        implementation = implementation.vendor(vendor);
    }
    Ok(implementation)
}

#[cfg(test)]
mod tests {
    use flagos_core::policy::{Source, Sourced};

    use super::*;
    use crate::selection::{Prefer, Selection};

    fn store() -> Store {
        let names = Names::built_in();
        let store = Store::own().expect("valid");
        for (id, kind, vendor, priority) in [
            ("default.flagos_rs", "flagos", None, 0),
            ("reference.torch", "reference", None, 0),
            ("vendor.a", "vendor", Some("ACME"), 5),
            ("vendor.b", "vendor", Some("acme"), 5),
            ("vendor.cuda", "vendor", Some("CUDA"), 1),
        ] {
            let implementation = describe(id, kind, vendor, priority, 1, &names).expect("valid");
            store
                .register("rmsnorm_fwd", implementation)
                .expect("fresh");
        }
        store
    }

    fn ids(store: &Store, selection: &Selection) -> Vec<String> {
        let layer = selection.layer(&Names::built_in()).expect("valid");
        let ranking = store
            .rank("rmsnorm_fwd", &policy(Some(&layer)).expect("valid"))
            .expect("known");
        ranking
            .usable
            .iter()
            .map(|(id, _)| id.to_string())
            .collect()
    }

    fn sourced<T>(value: T) -> Option<Sourced<T>> {
        Some(Sourced::new(value, Source::api("test")))
    }

    #[test]
    fn priority_then_id_descending_within_an_alternative() {
        let vendor_first = Selection {
            prefer: sourced(Prefer::Vendor),
            ..Selection::default()
        };
        let expected = [
            "vendor.b",
            "vendor.a",
            "vendor.cuda",
            "default.flagos_rs",
            "reference.torch",
        ];
        assert_eq!(ids(&store(), &vendor_first), expected);
    }

    #[test]
    fn vendors_match_in_any_case_and_by_their_company() {
        let denied = Selection {
            deny_vendors: sourced(vec!["nvidia".into(), "Acme".into()]),
            ..Selection::default()
        };
        assert_eq!(
            ids(&store(), &denied),
            ["default.flagos_rs", "reference.torch"]
        );
        let allowed = Selection {
            allow_vendors: sourced(vec!["NVIDIA".into()]),
            prefer: sourced(Prefer::Vendor),
            ..Selection::default()
        };
        assert_eq!(ids(&store(), &allowed)[0], "vendor.cuda");
    }

    #[test]
    fn an_order_of_its_own_replaces_the_default_one() {
        let order = vec!["impl:reference.torch".into(), "vendor:acme".into()];
        let own = Selection {
            per_op: vec![(
                "rmsnorm_fwd".into(),
                Sourced::new(order, Source::api("test")),
            )],
            ..Selection::default()
        };
        assert_eq!(
            ids(&store(), &own),
            ["reference.torch", "vendor.b", "vendor.a"]
        );
    }

    #[test]
    fn what_cannot_be_used_is_passed_over_and_blocks_with_its_reason() {
        let store = store();
        let none = Selection::default();
        store
            .set_availability("rmsnorm_fwd", "default.flagos_rs", Some("no chip"))
            .expect("known");
        assert!(!ids(&store, &none).contains(&"default.flagos_rs".to_owned()));
        for id in ["reference.torch", "vendor.a", "vendor.b", "vendor.cuda"] {
            store.unregister("rmsnorm_fwd", id).expect("known");
        }
        let ranking = store.rank_as_planned("rmsnorm_fwd").expect("known");
        assert!(ranking.usable.is_empty());
        assert!(ranking.blocked.expect("blocked").contains("no chip"));
    }
}
