//! Operators that the framework decomposes into others.

use super::*;
use crate::registry::Decision;

/// `linear` is composite; `linear.out` has kernels.
fn registry_with_composites() -> Registry {
    let mut registry = registry();
    let names = ["aten::linear".to_owned(), "aten::matmul".to_owned()];
    registry.declare_composite(&names).expect("valid names");
    let native = Implementation::new("cuda.native", Kind::Vendor, "cuda").vendor("cuda");
    let registered = registry.register("linear.out", Arc::new(native));
    registered.expect("a fresh implementation");
    registry
}

#[test]
fn an_explanation_says_that_it_is_decomposed() {
    let plan = resolve_all(&registry_with_composites(), &policy("")).expect("a plan");
    let explanation = plan.explain("linear").expect("known");
    assert!(explanation.composite);
    insta::assert_snapshot!(explanation, @r"
    aten::linear -> composite
      torch decomposes it into other operators, which are routed themselves
    ");
    let routed = plan.explain("linear.out").expect("known");
    assert!(!routed.composite && routed.winner.as_deref() == Some("cuda.native"));
}

#[test]
fn a_route_for_it_is_refused_with_its_place() {
    let registry = registry_with_composites();
    for route in ["cpu", "cuda", "vendor:cuda", "flaggems|cpu"] {
        let policy = policy(&format!("[ops]\nmm = \"cpu\"\nlinear = \"{route}\""));
        let error = resolve_all(&registry, &policy).expect_err("cannot be followed");
        let text = error.to_string();
        for part in [
            "`aten::linear`",
            "composite",
            "flagos.toml:3",
            "route those",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }
    let followed = resolve_all(&registry, &policy("[ops]\n\"linear.out\" = \"cuda\""));
    let plan = followed.expect("an operator with a kernel is routed");
    assert!(plan.find("linear.out").expect("known").explicit);
}

#[test]
fn a_pattern_is_about_the_overloads_that_are_routed() {
    let registry = registry_with_composites();
    let plan = resolve_all(&registry, &policy("[ops]\n\"linear.*\" = \"ascend\"")).expect("a plan");
    let decision = |op: &str| plan.find(op).expect("known").decision();
    assert_eq!(decision("linear.out"), Decision::Blocked);
    assert_eq!(decision("linear"), Decision::Native);
    let error = resolve_all(&registry, &policy("[ops]\n\"matmul.*\" = \"cpu\""));
    let error = error.expect_err("no overload is routed").to_string();
    assert!(error.contains("`aten::matmul`"), "{error}");
}

#[test]
fn an_implementation_of_it_is_routed_like_any_other() {
    let mut registry = registry_with_composites();
    let mine = Implementation::new("user.linear", Kind::Flagos, "flagos_python");
    let mine = Arc::new(mine.callable(Callable::Foreign(13)));
    registry.register("linear", mine).expect("fresh");
    for text in ["", "ops.linear = \"impl:user.linear\""] {
        let plan = resolve_all(&registry, &policy(text)).expect("a plan");
        assert_eq!(winner(&plan, "linear").as_deref(), Some("user.linear"));
        assert!(!plan.explain("linear").expect("known").composite);
    }
    // torch would decompose the operator all the same.
    let refused = resolve_all(&registry, &policy("ops.linear = \"cuda\""));
    assert!(refused.is_err());
}

#[test]
fn a_lock_file_is_about_what_is_decided() {
    let plan = resolve_all(&registry_with_composites(), &policy("")).expect("a plan");
    let text = plan.lock();
    assert!(text.contains("linear.out") && !text.contains("matmul"));
    plan.check_lock("plan.lock", &text).expect("the same plan");
}
