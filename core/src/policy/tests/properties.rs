//! Properties of resolution, over generated registries and policies.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::registry::{Availability, OpId};

const OPS: [&str; 6] = [
    "aten::mm",
    "aten::mm.out",
    "aten::add.Tensor",
    "aten::add.Scalar",
    "te::norm",
    "te::norm.out",
];
const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const VENDORS: [&str; 3] = ["host", "cuda", "metax"];
const BACKENDS: [&str; 5] = ["cpu", "cuda", "metax", "flaggems", "flagos_python"];

prop_compose! {
    fn implementation()(
        kind in select(Kind::ALL.to_vec()),
        vendor in proptest::option::of(select(VENDORS.to_vec())),
        backend in select(BACKENDS.to_vec()),
        priority in -1..2_i32,
        available in proptest::bool::weighted(0.8),
    ) -> Implementation {
        let mut implementation = Implementation::new("", kind, backend).priority(priority);
        implementation.vendor = vendor.map(Into::into);
        if available { implementation } else { implementation.unavailable("probe failed") }
    }
}

/// Registries in which every operator exists and every id is registered for at least one, so that all names
/// are valid.
fn registries() -> impl Strategy<Value = Registry> {
    let of_op = proptest::collection::vec(proptest::option::of(implementation()), IDS.len());
    proptest::collection::vec(of_op, OPS.len()).prop_map(|ops| {
        let mut registry = Registry::new();
        for (op, implementations) in OPS.into_iter().zip(ops) {
            registry.intern(op).expect("a valid name");
            for (id, implementation) in IDS.into_iter().zip(implementations) {
                if let Some(mut implementation) = implementation {
                    implementation.impl_id = id.into();
                    registry.register(op, implementation.into()).expect("fresh");
                }
            }
        }
        for id in IDS {
            let all = Implementation::new(id, Kind::Reference, "cpu");
            registry.register("te::all_ids", all.into()).expect("fresh");
        }
        registry
    })
}

fn selectors() -> impl Strategy<Value = Vec<Selector>> {
    let all: Vec<_> = [
        "flagos",
        "vendor",
        "reference",
        "vendor:cuda",
        "vendor:host",
    ]
    .into_iter()
    .chain(["impl:a", "impl:b", "impl:e", "flaggems", "flagos_python"])
    .chain(["cuda", "metax", "ascend", "cpu"])
    .map(|text| Selector::parse(text, &Names::built_in()).expect("valid"))
    .collect();
    proptest::sample::subsequence(all, 1..4).prop_shuffle()
}

fn patterns() -> impl Strategy<Value = OpPattern> {
    let all = OPS
        .into_iter()
        .chain(["aten::add.*", "aten::mm.*", "te::norm.*"]);
    let all: Vec<_> = all
        .map(|text| OpPattern::parse(text).expect("valid"))
        .collect();
    select(all)
}

fn vendors() -> impl Strategy<Value = Vec<Arc<str>>> {
    let all = VENDORS.map(Arc::<str>::from).to_vec();
    proptest::sample::subsequence(all, 0..3)
}

/// Layers in which each pattern appears once, as in a `flagos.toml`.
fn layers(name: &'static str) -> impl Strategy<Value = Layer> {
    let source = Source::api(name);
    let given = |source: &Source| {
        let source = source.clone();
        move |value| Sourced::new(value, source.clone())
    };
    let routes = proptest::collection::vec((patterns(), selectors()), 0..4);
    (
        proptest::option::of(selectors()),
        routes,
        proptest::option::of(vendors()),
        proptest::option::of(vendors()),
        proptest::option::of(any::<bool>()),
        proptest::option::of(proptest::option::of(0..1_000_000_u64)),
    )
        .prop_map(move |(order, routes, deny, allow, log, limit)| {
            let mut layer = Layer {
                order: order.map(given(&source)),
                deny_vendors: deny.map(|value| Sourced::new(value, source.clone())),
                allow_vendors: allow.map(|value| Sourced::new(value, source.clone())),
                log_dispatch: log.map(|value| Sourced::new(value, source.clone())),
                max_cpu_fallback: limit.map(|value| Sourced::new(value, source.clone())),
                ..Layer::default()
            };
            for (pattern, selectors) in routes {
                if layer.ops.iter().all(|(known, _)| *known != pattern) {
                    layer.route(pattern, selectors, source.clone());
                }
            }
            layer
        })
}

fn active() -> impl Strategy<Value = Layer> {
    proptest::option::of(select(VENDORS.to_vec())).prop_map(|vendor| Layer {
        vendor: vendor.map(|vendor| Sourced::built_in(vendor.into())),
        ..Layer::default()
    })
}

fn outcomes(plan: &Plan) -> Vec<String> {
    plan.iter()
        .map(|entry| entry.explain().to_string())
        .collect()
}

/// The route of an operator within one layer, found in the slow, obvious way.
fn routed_by<'l>(layer: &'l Layer, op: &str) -> Option<&'l Route> {
    let exact = layer
        .ops
        .iter()
        .find(|(pattern, _)| pattern.to_string() == op);
    let base = op.split('.').next().unwrap_or(op);
    let mut wildcards = layer.ops.iter();
    let wildcard = wildcards.find(|(pattern, _)| pattern.to_string() == format!("{base}.*"));
    exact.or(wildcard).map(|(_, route)| route)
}

fn without_sources(mut layer: Layer) -> Layer {
    fn strip<T>(sourced: &mut Option<Sourced<T>>) {
        if let Some(sourced) = sourced {
            sourced.source = Source::BuiltIn;
        }
    }
    strip(&mut layer.order);
    strip(&mut layer.deny_vendors);
    strip(&mut layer.allow_vendors);
    strip(&mut layer.log_dispatch);
    strip(&mut layer.max_cpu_fallback);
    for (_, route) in &mut layer.ops {
        route.source = Source::BuiltIn;
    }
    layer
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_highest_layer_that_routes_an_operator_decides(
        registry in registries(), low in layers("low"), high in layers("high"),
    ) {
        let policy = Policy::from_layers([&low, &high]);
        let plan = resolve_all(&registry, &policy).expect("valid names");
        for entry in plan.iter() {
            let expected = routed_by(&high, &entry.op).or_else(|| routed_by(&low, &entry.op));
            prop_assert_eq!(entry.explicit, expected.is_some());
            let order = high.order.as_ref().or(low.order.as_ref()).unwrap_or(&policy.order);
            prop_assert_eq!(&*entry.route, expected.unwrap_or(order));
        }
    }

    #[test]
    fn a_winner_is_usable_and_named_first(
        registry in registries(), active in active(), layer in layers("layer"),
    ) {
        let policy = Policy::from_layers([&active, &layer]);
        let plan = resolve_all(&registry, &policy).expect("valid names");
        for entry in plan.iter() {
            let losers = entry.implementations.iter().filter(|c| c.lost.is_some()).count();
            let chosen = usize::from(entry.winner.is_some());
            prop_assert_eq!(losers + chosen, entry.implementations.len());
            let Some(winner) = entry.winner() else {
                // No usable implementation was named.
                let reasons = entry.implementations.iter().filter_map(|c| c.lost.as_ref());
                for reason in reasons {
                    prop_assert!(!reason.is_usable() || *reason == Reason::NotNamed);
                }
                continue;
            };
            prop_assert_eq!(&winner.availability, &Availability::Available);
            if let Some(vendor) = &winner.vendor {
                prop_assert!(!policy.deny_vendors.value.contains(vendor));
                let allowed = policy.allow_vendors.as_ref();
                prop_assert!(allowed.is_none_or(|allowed| allowed.value.contains(vendor)));
            }
        }
    }

    #[test]
    fn deny_beats_allow_and_every_route(
        registry in registries(), mut layer in layers("layer"), denied in select(VENDORS.to_vec()),
    ) {
        let denied: Arc<str> = denied.into();
        let list = || Some(Sourced::new(vec![Arc::clone(&denied)], Source::BuiltIn));
        layer.deny_vendors = list();
        layer.allow_vendors = list();
        let plan = resolve_all(&registry, &Policy::from_layers([&layer])).expect("valid names");
        for winner in plan.iter().filter_map(PlanEntry::winner) {
            prop_assert_eq!(&winner.vendor, &None);
        }
    }

    #[test]
    fn resolution_is_deterministic_and_idempotent(
        registry in registries(), active in active(), layer in layers("layer"),
    ) {
        let policy = Policy::from_layers([&active, &layer]);
        let plan = resolve_all(&registry, &policy).expect("valid names");
        let again = resolve_all(&registry, plan.policy()).expect("valid names");
        prop_assert_eq!(outcomes(&plan), outcomes(&again));
        prop_assert_eq!(plan.lock(), again.lock());
        prop_assert!(again.check_lock("lock", &plan.lock()).is_ok());
        // The order of registration has no influence.
        let mut reversed = Registry::new();
        for (_, op) in registry.iter().collect::<Vec<_>>().into_iter().rev() {
            reversed.intern(&op.name).expect("valid");
            for implementation in op.implementations.iter().rev() {
                reversed.register(&op.name, Arc::clone(implementation)).expect("fresh");
            }
        }
        let reversed = resolve_all(&reversed, &policy).expect("valid names");
        prop_assert_eq!(plan.lock(), reversed.lock());
    }

    #[test]
    fn resolving_what_changed_equals_resolving_everything(
        registry in registries(), active in active(), before in layers("before"),
        context in layers("context"),
    ) {
        let context = Layer { ops: context.ops, ..Layer::default() };
        let old = Policy::from_layers([&active, &before]);
        let new = Policy::from_layers([&active, &before, &context]);
        let old = resolve_all(&registry, &old).expect("valid names");
        let changed: BTreeSet<OpId> = matched(&registry, context.ops.iter().map(|(p, _)| p));
        let some = resolve_some(&old, &registry, &new, &changed).expect("valid names");
        let all = resolve_all(&registry, &new).expect("valid names");
        prop_assert_eq!(outcomes(&some), outcomes(&all));
    }

    #[test]
    fn a_layer_survives_printing_and_reading(layer in layers("layer")) {
        let read = toml(&to_toml(&layer)).expect("printed text is valid").layer;
        prop_assert_eq!(without_sources(read), without_sources(layer.clone()));
        let read = conf(&to_backends_conf(&layer)).expect("printed text is valid");
        let routes = Layer { ops: layer.ops, ..Layer::default() };
        prop_assert_eq!(without_sources(read), without_sources(routes));
    }

    #[test]
    fn any_text_is_read_or_refused_on_one_line(text in "\\PC{0,40}(\n\\PC{0,40}){0,3}") {
        for error in [toml(&text).err(), conf(&text).err()].into_iter().flatten() {
            prop_assert!(!error.to_string().contains('\n'));
            let at = error.context("at").unwrap_or_default();
            prop_assert!(at.starts_with("flagos.toml:") || at.starts_with("backends.conf:"), "{}", error);
        }
    }
}
