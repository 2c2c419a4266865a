//! Explanations as text and as data.

use super::*;
use crate::registry::{Condition, Verdict};

#[test]
fn the_text_shows_the_winner_what_decided_and_every_loser() {
    let plan = resolve("[ops]\nmm = [\"ascend\", \"vendor\", \"cpu\"]").expect("a plan");
    insta::assert_snapshot!("explicit_route", plan.explain("mm").expect("known"));
    insta::assert_snapshot!("default_order", plan.explain("mm.out").expect("known"));
}

#[test]
fn the_text_of_a_blocked_operator_shows_why() {
    let plan = resolve("[ops]\n\"aten::add.Tensor\" = \"ascend\"").expect("a plan");
    insta::assert_snapshot!("blocked_route", plan.explain("add.Tensor").expect("known"));
}

#[test]
fn the_text_of_an_operator_nobody_implements() {
    let mut registry = registry();
    registry.intern("view").expect("valid");
    let plan = resolve_all(&registry, &policy("")).expect("a plan");
    insta::assert_snapshot!(plan.explain("view").expect("known"), @r"
    aten::view -> the adapter's own path
      order: flagos|vendor|reference
      decided by: the built-in default
      no implementation is registered
    ");
}

/// `exp` with a kernel that is known to be right for some calls, and `sin` with one that is wrong.
fn verified() -> Registry {
    let mut registry = registry();
    let condition = |name: &str, means: &str| Condition {
        name: name.into(),
        means: means.into(),
    };
    let verdict = |verdict: &str, found: &str| Verdict {
        verdict: verdict.into(),
        found: found.into(),
    };
    let kernel = || Implementation::new("flaggems.kernel", Kind::Flagos, "flaggems");
    let exp = kernel()
        .only([
            condition("nonempty", "no tensor is without elements"),
            condition("contiguous", "every tensor is contiguous"),
        ])
        .verdict(verdict("STRICT", "in 41 cases; wrong outside: exp float32"));
    let sin = kernel()
        .verdict(verdict("FAILED", "on this chip: sin float32"))
        .on_request("verified to be wrong on this chip: sin float32");
    for (op, implementation) in [("exp", exp), ("sin", sin)] {
        registry
            .register(op, Arc::new(implementation))
            .expect("valid");
        let native = Implementation::new("cuda.native", Kind::Vendor, "cuda").vendor("cuda");
        registry.register(op, Arc::new(native)).expect("valid");
    }
    registry
}

#[test]
fn the_text_tells_which_calls_are_served_and_the_verdict_behind_it() {
    let plan = resolve_all(&verified(), &policy("")).expect("a plan");
    insta::assert_snapshot!(plan.explain("exp").expect("known"), @r"
    aten::exp -> flaggems.kernel
      order: flagos|vendor|reference
      decided by: the built-in default
      * flaggems.kernel  flagos, backend flaggems: chosen by `flagos`
          serves a call only when no tensor is without elements and every tensor is contiguous; other calls go to the native kernel
          verdict: STRICT in 41 cases; wrong outside: exp float32
        cuda.native      vendor, vendor cuda, backend cuda: a later alternative of the route (vendor)
    ");
}

#[test]
fn the_data_names_the_conditions_and_the_verdict() {
    let plan = resolve_all(&verified(), &policy("")).expect("a plan");
    let explanation = plan.explain("exp").expect("known");
    let json = serde_json::to_value(&explanation.implementations[0]).expect("serialisable");
    assert_eq!(json["only"][1]["name"], "contiguous");
    assert_eq!(json["only"][1]["means"], "every tensor is contiguous");
    assert_eq!(json["verdict"]["verdict"], "STRICT");
    let native = serde_json::to_value(&explanation.implementations[1]).expect("serialisable");
    assert_eq!(native["only"], serde_json::json!([]));
    assert_eq!(native["verdict"], serde_json::Value::Null);
}

#[test]
fn a_verdict_is_told_once_and_also_when_a_route_asks_for_what_failed() {
    let explained = |configuration| {
        let plan = resolve_all(&verified(), &policy(configuration)).expect("a plan");
        plan.explain("sin").expect("known").to_string()
    };
    let left = explained("");
    assert_eq!(left.matches("sin float32").count(), 1, "{left}");
    assert!(left.contains("verified to be wrong"), "{left}");
    let routed = explained("[ops]\nsin = \"flaggems\"");
    assert!(
        routed.starts_with("aten::sin -> flaggems.kernel"),
        "{routed}"
    );
    assert!(
        routed.contains("verdict: FAILED on this chip: sin float32"),
        "{routed}"
    );
}

#[test]
fn the_data_is_serialisable() {
    let plan = resolve("[ops]\nmm = \"cpu\"").expect("a plan");
    let explanation = plan.explain("aten::mm").expect("known");
    let json = serde_json::to_string_pretty(&explanation).expect("serialisable");
    insta::assert_snapshot!("json", json);
}

#[test]
fn an_unknown_operator_is_an_error_that_suggests_what_it_may_mean() {
    let plan = resolve("").expect("a plan");
    let cases = [
        ("add.Tensr", "did you mean `aten::add.Tensor`?"),
        (
            "add",
            "its overloads are `aten::add.Scalar`, `aten::add.Tensor`",
        ),
        ("nothing_like_it", "`flagos ops` lists the known ones"),
    ];
    for (name, hint) in cases {
        let error = plan.explain(name).expect_err("unknown");
        assert_eq!(
            error.to_string(),
            format!("plan: unknown operator `{name}`; {hint}")
        );
    }
}
