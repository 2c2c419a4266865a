//! Which implementation wins, and why the others lose.

use super::*;
use crate::registry::Decision;

fn reason(plan: &Plan, op: &str, impl_id: &str) -> Option<String> {
    let entry = plan.find(op).expect("a known operator");
    let mut implementations = entry.implementations.iter();
    let found = implementations.find(|c| &*c.implementation.impl_id == impl_id);
    let lost = &found.expect("an implementation").lost;
    lost.as_ref().map(ToString::to_string)
}

#[test]
fn by_default_flaggems_then_the_active_vendor_then_the_reference() {
    let plan = resolve("").expect("a plan");
    assert_eq!(winner(&plan, "mm").as_deref(), Some("flaggems.python"));
    assert_eq!(winner(&plan, "add.Scalar").as_deref(), Some("cuda.native"));
    assert_eq!(
        winner(&plan, "te::rmsnorm_fwd").as_deref(),
        Some("te.reference")
    );
    assert!(plan.iter().all(|entry| !entry.explicit));
}

#[test]
fn what_is_known_to_be_wrong_is_passed_over_with_its_reason() {
    let plan = resolve("").expect("a plan");
    assert_eq!(winner(&plan, "mm.out").as_deref(), Some("cuda.native"));
    let reason = reason(&plan, "mm.out", "flaggems.python");
    assert_eq!(reason.as_deref(), Some("unavailable: wrong for views"));
}

#[test]
fn every_loser_has_its_reason() {
    let plan = resolve("ops.mm = \"flagos|cpu\"").expect("a plan");
    let cases = [
        ("flaggems.python", None),
        ("user.mm", Some("lower priority")),
        ("cuda.native", Some("not named by the route")),
        ("metax.native", Some("the active vendor is cuda")),
        (
            "cpu.reference",
            Some("a later alternative of the route (cpu)"),
        ),
    ];
    for (impl_id, expected) in cases {
        assert_eq!(
            reason(&plan, "mm", impl_id).as_deref(),
            expected,
            "{impl_id}"
        );
    }
}

#[test]
fn flaggems_is_logged_by_the_name_that_routes_to_it() {
    let cases = [
        ("flaggems", "flaggems"),
        ("flagos", "flaggems"),
        ("impl:flaggems.python", "flaggems"),
        ("flagos_python", "flagos_python"),
        ("flaggems_python|cuda", "flagos_python"),
        ("cuda|flagos_python", "flagos_python"),
        ("flaggems|flagos_python", "flaggems"),
    ];
    for (selectors, expected) in cases {
        let plan = resolve(&format!("ops.mm = \"{selectors}\"")).expect("a plan");
        let entry = plan.find("mm").expect("known");
        assert_eq!(entry.logged_as("flaggems"), expected, "{selectors}");
        assert_eq!(entry.logged_as("cuda"), "cuda", "{selectors}");
    }
}

#[test]
fn routes_select_by_kind_vendor_id_and_backend() {
    let cases = [
        ("flagos", "flaggems.python"),
        ("vendor", "cuda.native"),
        ("reference", "cpu.reference"),
        ("vendor:cuda", "cuda.native"),
        ("impl:user.mm", "user.mm"),
        ("flaggems", "flaggems.python"),
        ("flagos_python", "flaggems.python"),
        ("cuda", "cuda.native"),
        ("cpu", "cpu.reference"),
        ("metax|cpu", "cpu.reference"),
    ];
    for (selectors, expected) in cases {
        let plan = resolve(&format!("ops.mm = \"{selectors}\"")).expect("a plan");
        assert_eq!(
            winner(&plan, "mm").as_deref(),
            Some(expected),
            "{selectors}"
        );
    }
}

#[test]
fn a_higher_priority_wins_and_ties_go_to_the_first_id() {
    let mut registry = Registry::new();
    for (id, priority) in [("c", 1), ("b", 2), ("a", 2), ("d", 0)] {
        let implementation = Implementation::new(id, Kind::Flagos, "flagos").priority(priority);
        registry
            .register("mm", implementation.into())
            .expect("fresh");
    }
    let plan = resolve_all(&registry, &Policy::default()).expect("a plan");
    assert_eq!(winner(&plan, "mm").as_deref(), Some("a"));
}

#[test]
fn denied_and_not_allowed_vendors_lose_even_when_routed_to() {
    let plan = resolve("policy.deny_vendors = [\"cuda\"]\nops.mm = \"cuda|cpu\"").expect("a plan");
    assert_eq!(winner(&plan, "mm").as_deref(), Some("cpu.reference"));
    assert_eq!(
        reason(&plan, "mm", "cuda.native").as_deref(),
        Some("its vendor is denied by flagos.toml:1")
    );
    let plan = resolve("policy.allow_vendors = [\"metax\"]").expect("a plan");
    assert_eq!(
        winner(&plan, "add.Scalar").as_deref(),
        Some("cpu.reference")
    );
    assert_eq!(
        reason(&plan, "add.Scalar", "cuda.native").as_deref(),
        Some("its vendor is not allowed by flagos.toml:1")
    );
}

#[test]
fn disabling_flaggems_keeps_other_python_implementations() {
    let mut policy = policy("");
    policy.disable_flaggems = Sourced::new(true, Source::env("FLAGOS_DISABLE_FLAGGEMS_PY"));
    let plan = resolve_all(&registry(), &policy).expect("a plan");
    assert_eq!(winner(&plan, "mm").as_deref(), Some("user.mm"));
    assert_eq!(
        reason(&plan, "mm", "flaggems.python").as_deref(),
        Some("FlagGems is disabled by the variable FLAGOS_DISABLE_FLAGGEMS_PY")
    );
}

#[test]
fn without_an_active_vendor_any_vendor_will_do() {
    let plan = resolve_all(&registry(), &Policy::default()).expect("a plan");
    assert_eq!(winner(&plan, "add.Scalar").as_deref(), Some("cuda.native"));
    let active = Layer {
        vendor: Some(Sourced::built_in("metax".into())),
        ..Layer::default()
    };
    let plan = resolve_all(&registry(), &Policy::from_layers([&active])).expect("a plan");
    assert_eq!(winner(&plan, "add.Scalar").as_deref(), Some("metax.native"));
}

#[test]
fn the_exact_name_beats_the_wildcard_of_its_layer_and_a_layer_beats_both_below() {
    let low = toml("[ops]\n\"add.Tensor\" = \"cpu\"\n\"add.*\" = \"cuda\"")
        .expect("valid")
        .layer;
    let high = toml("[ops]\n\"add.*\" = \"flaggems|cuda\"")
        .expect("valid")
        .layer;
    let registry = registry();
    let plan = resolve_all(&registry, &Policy::from_layers([&cuda(), &low])).expect("a plan");
    assert_eq!(
        winner(&plan, "add.Tensor").as_deref(),
        Some("cpu.reference")
    );
    assert_eq!(winner(&plan, "add.Scalar").as_deref(), Some("cuda.native"));
    let layers = [&cuda(), &low, &high];
    let plan = resolve_all(&registry, &Policy::from_layers(layers)).expect("a plan");
    assert_eq!(
        winner(&plan, "add.Tensor").as_deref(),
        Some("flaggems.python")
    );
}

#[test]
fn a_route_that_cannot_be_followed_blocks_its_operator() {
    let plan = resolve("ops.mm = \"ascend|metax\"").expect("a plan");
    let entry = plan.find("mm").expect("known");
    assert_eq!(entry.decision(), Decision::Blocked);
    insta::assert_snapshot!(entry.blocked_reason().expect("blocked"), @"aten::mm is blocked: none of `ascend|metax`, set by flagos.toml:1, is usable (flaggems.python: not named by the route; cuda.native: not named by the route; metax.native: the active vendor is cuda; cpu.reference: not named by the route; user.mm: not named by the route)");
}

#[test]
fn a_route_to_what_is_not_installed_says_so() {
    let plan = resolve("ops.mm = \"ascend\"").expect("a plan");
    let reason = plan.find("mm").expect("known").blocked_reason();
    assert!(!reason.expect("blocked").contains("is installed here"));

    let plan = resolve("ops.\"te::rmsnorm_fwd\" = \"flaggems\"").expect("a plan");
    let reason = plan
        .find("te::rmsnorm_fwd")
        .expect("known")
        .blocked_reason();
    insta::assert_snapshot!(reason.expect("blocked"), @"te::rmsnorm_fwd is blocked: none of `flaggems`, set by flagos.toml:1, is usable: nothing that is installed here provides it (te.reference: not named by the route)");
}

#[test]
fn in_strict_mode_a_route_that_cannot_be_followed_is_an_error() {
    let text = "policy.strict = true\n[ops]\nmm = \"ascend\"\n\"add.*\" = \"ascend\"\n";
    let error = resolve(text).expect_err("strict");
    insta::assert_snapshot!(error.report());
}

#[test]
fn an_operator_nothing_in_the_order_serves_is_blocked_but_no_strict_error() {
    let plan = resolve("policy.strict = true\npolicy.order = \"impl:user.mm\"").expect("a plan");
    assert_eq!(
        plan.find("mm").expect("known").decision(),
        Decision::Foreign(12)
    );
    assert_eq!(
        plan.find("mm.out").expect("known").decision(),
        Decision::Blocked
    );
}

#[test]
fn an_operator_nobody_implements_stays_native_unless_it_is_routed() {
    let mut registry = registry();
    registry.intern("aten::view").expect("valid");
    let decide = |text| {
        let plan = resolve_all(&registry, &policy(text)).expect("a plan");
        plan.find("view").expect("known").decision()
    };
    assert_eq!(decide(""), Decision::Native);
    assert_eq!(decide("ops.view = \"cpu\""), Decision::Blocked);
}

#[test]
fn names_that_do_not_exist_are_errors_with_their_place() {
    let cases = [
        "[ops]\nbmm = \"cpu\"",
        "[ops]\n\n\"aten::add.Tensro\" = \"cpu\"",
        "[ops]\nadd = \"cpu\"",
        "[ops]\n\"bmm.*\" = \"cpu\"",
        "[ops]\nrmsnorm_fwd = \"cpu\"",
        "[ops]\n\"te::rmsnorm_bwd\" = \"cpu\"",
        "[ops]\nmm = \"impl:user.mn|cpu\"",
        "[ops]\nmm = \"impl:entirely_unrelated\"",
        "[ops]\nmm = \"vendor:metaxx|cpu\"",
        "[policy]\norder = [\"vendor:nvida\"]",
        "[policy]\ndeny_vendors = [\"cudda\"]",
        "[policy]\nallow_vendors = [\"cuda\", \"hots\"]",
    ];
    insta::assert_snapshot!(errors(&cases, resolve));
}

#[test]
fn names_of_a_namespace_without_operators_are_kept() {
    let plan = resolve("[ops]\n\"lightx2v::norm\" = \"impl:lx.fast\"").expect("a plan");
    let unmatched = plan.unmatched();
    assert_eq!(unmatched.len(), 1);
    assert_eq!(unmatched[0].0, "lightx2v::norm");
    assert_eq!(unmatched[0].1.to_string(), "flagos.toml:2");
}

/// The ids of the implementations that take over from `declined` under a configuration.
fn successors(toml: &str, declined: &str) -> Vec<String> {
    let mut registry = Registry::new();
    for implementation in [
        Implementation::new("gems", Kind::Flagos, "flaggems"),
        Implementation::new("mine", Kind::Flagos, "flagos_python").priority(1),
        Implementation::new("unverified", Kind::Flagos, "flaggems").on_request("not verified"),
        Implementation::new("reference", Kind::Reference, "reference"),
        Implementation::new("kernel", Kind::Vendor, "cuda").vendor("cuda"),
        Implementation::new("triton", Kind::Vendor, "cuda")
            .vendor("cuda")
            .priority(1),
        Implementation::new("other", Kind::Vendor, "metax").vendor("metax"),
        Implementation::new("broken", Kind::Reference, "cpu").unavailable("no chip"),
    ] {
        let registered = registry.register("own::op", implementation.into());
        registered.expect("fresh");
    }
    let plan = resolve_all(&registry, &policy(toml)).expect("a plan");
    let entry = plan.find("own::op").expect("known");
    let found = entry.successors(declined).into_iter();
    found.map(|i| i.impl_id.to_string()).collect()
}

#[test]
fn declined_calls_go_to_vendors_then_references_then_flagos() {
    assert_eq!(
        successors("", "mine"),
        ["triton", "kernel", "reference", "gems"]
    );
    assert_eq!(
        successors("", "triton"),
        ["kernel", "reference", "mine", "gems"]
    );
    // An implementation that the route does not name was not chosen, but may take over.
    assert_eq!(
        successors("ops.\"own::op\" = \"impl:gems\"", "gems"),
        ["triton", "kernel", "reference", "mine"]
    );
}

#[test]
fn what_is_there_on_request_takes_over_only_where_it_is_asked_for() {
    let takes_over = |route: &str, declined| {
        let toml = format!("ops.\"own::op\" = \"{route}\"");
        let found = successors(&toml, declined);
        found.contains(&"unverified".to_owned())
    };
    assert!(!successors("", "mine").contains(&"unverified".to_owned()));
    assert!(!takes_over("reference", "reference"));
    assert!(takes_over("reference|impl:unverified", "reference"));
    assert!(takes_over("impl:unverified", "reference"));
}
