//! Explanations as text and as data.

use super::*;

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

#[test]
fn the_data_is_serialisable() {
    let plan = resolve("[ops]\nmm = \"cpu\"").expect("a plan");
    let explanation = plan.explain("aten::mm").expect("known");
    let json = serde_json::to_string_pretty(&explanation).expect("serialisable");
    insta::assert_snapshot!("json", json);
}

#[test]
fn an_unknown_operator_is_an_error_with_the_nearest_name() {
    let plan = resolve("").expect("a plan");
    let error = plan.explain("add.Tensr").expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "plan: unknown operator `add.Tensr`; did you mean `aten::add.Tensor`?"
    );
}
