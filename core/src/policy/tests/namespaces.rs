//! Settings and rules of single namespaces.

use std::collections::BTreeMap;

use super::*;
use crate::registry::Namespace;

const RULES: Namespace = Namespace {
    last_id_wins: true,
    any_device: true,
};

/// `te::gelu` and `aten::gelu` with the same implementations.
fn twice(rules: Namespace) -> Registry {
    let mut registry = Registry::new();
    registry.declare_namespace("te", rules);
    for op in ["te::gelu", "aten::gelu"] {
        for implementation in [
            Implementation::new("a.flagos", Kind::Flagos, "flagos"),
            Implementation::new("b.flagos", Kind::Flagos, "flagos"),
            Implementation::new("acme.gelu", Kind::Vendor, "acme").vendor("acme"),
            Implementation::new("cpu.gelu", Kind::Reference, "cpu"),
        ] {
            let registered = registry.register(op, Arc::new(implementation));
            registered.expect("a fresh implementation");
        }
    }
    registry
}

fn scoped(scoped: Scoped) -> Layer {
    Layer {
        namespaces: BTreeMap::from([("te".into(), scoped)]),
        ..Layer::default()
    }
}

fn order(kinds: &[Kind]) -> Option<Route> {
    let selectors = kinds.iter().copied().map(Selector::Kind).collect();
    Some(Sourced::new(selectors, Source::env("TE")))
}

fn winners(registry: &Registry, layers: &[Layer]) -> [String; 2] {
    let plan = resolve_all(registry, &Policy::from_layers(layers)).expect("a plan");
    ["te::gelu", "aten::gelu"].map(|op| winner(&plan, op).unwrap_or_default())
}

#[test]
fn an_order_of_a_namespace_holds_there_alone() {
    let te = scoped(Scoped {
        order: order(&[Kind::Reference, Kind::Flagos]),
        ..Scoped::default()
    });
    let found = winners(&twice(RULES), &[te]);
    assert_eq!(found, ["cpu.gelu", "a.flagos"]);
}

#[test]
fn what_a_stronger_layer_says_of_all_beats_what_a_weaker_one_says_of_one() {
    let te = scoped(Scoped {
        order: order(&[Kind::Reference]),
        ..Scoped::default()
    });
    let all = toml("[policy]\norder = [\"vendor\"]").expect("valid").layer;
    let registry = twice(RULES);
    let weaker = winners(&registry, &[te.clone(), all.clone()]);
    assert_eq!(weaker, ["acme.gelu", "acme.gelu"]);
    assert_eq!(winners(&registry, &[all, te]), ["cpu.gelu", "acme.gelu"]);
}

#[test]
fn vendors_are_denied_and_allowed_by_namespace() {
    let vendors = |name: &str| Some(Sourced::new(vec![name.into()], Source::env("TE")));
    let first = toml("[policy]\norder = [\"vendor\", \"reference\"]").expect("valid");
    for te in [
        Scoped {
            deny_vendors: vendors("acme"),
            ..Scoped::default()
        },
        Scoped {
            allow_vendors: vendors("musa"),
            ..Scoped::default()
        },
    ] {
        let layers = [first.layer.clone(), scoped(te)];
        assert_eq!(winners(&twice(RULES), &layers), ["cpu.gelu", "acme.gelu"]);
    }
}

#[test]
fn a_vendor_nobody_has_is_an_error_that_names_what_set_it() {
    let te = scoped(Scoped {
        deny_vendors: Some(Sourced::new(vec!["musaa".into()], Source::env("TE"))),
        ..Scoped::default()
    });
    let error = resolve_all(&twice(RULES), &Policy::from_layers([&te])).expect_err("unknown");
    let message = error.to_string();
    assert!(message.contains("unknown vendor `musaa`") && message.contains("the variable TE"));
    assert!(message.ends_with("did you mean `musa`?"), "{message}");
    // As long as the namespace has no implementations, its plugins may still bring the vendor.
    assert!(resolve_all(&registry_without_te(), &Policy::from_layers([&te])).is_ok());
}

fn registry_without_te() -> Registry {
    let mut registry = twice(RULES);
    for id in ["a.flagos", "b.flagos", "acme.gelu", "cpu.gelu"] {
        registry.unregister("te::gelu", id).expect("registered");
    }
    registry
}

#[test]
fn the_rules_of_a_namespace_decide_ties_and_the_place_of_the_active_vendor() {
    let vendor_first = toml("[policy]\norder = [\"vendor\", \"flagos\"]").expect("valid");
    let layers = [cuda(), vendor_first.layer];
    assert_eq!(winners(&twice(RULES), &layers), ["acme.gelu", "a.flagos"]);
    let plain = Namespace::default();
    assert_eq!(winners(&twice(plain), &layers), ["a.flagos", "a.flagos"]);
    assert_eq!(winners(&twice(RULES), &[]), ["b.flagos", "a.flagos"]);
}

#[test]
fn the_ranking_is_what_would_win_next() {
    let registry = twice(RULES);
    let policy = Policy::default();
    let plan = resolve_all(&registry, &policy).expect("a plan");
    let ids = |entry: &PlanEntry| -> Vec<String> {
        let ranked = entry.ranked().into_iter();
        ranked.map(|i| i.impl_id.to_string()).collect()
    };
    let entry = plan.find("te::gelu").expect("known");
    assert_eq!(
        ids(entry),
        ["b.flagos", "a.flagos", "acme.gelu", "cpu.gelu"]
    );
    let id = registry.id("te::gelu").expect("known");
    let alone = resolve_one(&registry, &policy, id).expect("an entry");
    assert_eq!(ids(&alone), ids(entry));
    assert_eq!(alone.winner(), entry.winner());
}

#[test]
fn strict_mode_of_a_namespace() {
    let strict = |value| Some(Sourced::new(value, Source::env("TE")));
    let te = scoped(Scoped {
        strict: strict(true),
        ..Scoped::default()
    });
    let policy = Policy::from_layers([&te]);
    assert!(policy.strict_in("te").value && !policy.strict_in("aten").value);
    let all = Layer {
        strict: strict(false),
        ..Layer::default()
    };
    assert!(!Policy::from_layers([&te, &all]).strict_in("te").value);
}
