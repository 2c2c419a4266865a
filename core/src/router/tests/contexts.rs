//! The context layer.

use super::*;

#[test]
fn a_context_beats_everything_until_it_is_popped() {
    let bench = Bench::new();
    bench.set("FLAGOS_OP_mm", "cpu");
    bench.router.resolve().expect("a plan");
    bench
        .router
        .set_route("mm", "flaggems", "test")
        .expect("valid");
    let outer = bench
        .router
        .push_context([("mm", "reference"), ("add.*", "cpu")])
        .expect("valid");
    assert_eq!(bench.decision("mm"), Decision::CpuFallback);
    assert_eq!(bench.decision("add.Tensor"), Decision::Native);
    let inner = bench.router.push_context([("mm", "cpu")]).expect("valid");
    assert_eq!(bench.decision("mm"), Decision::Native);
    let explained = bench.router.explain("mm").expect("known");
    assert_eq!(explained.decided_by, "the active routing context");
    bench.router.pop_context(inner).expect("active");
    assert_eq!(bench.decision("mm"), Decision::CpuFallback);
    bench.router.pop_context(outer).expect("active");
    assert_eq!(bench.decision("mm"), Decision::Foreign(11));
    assert_eq!(bench.decision("add.Tensor"), Decision::Foreign(11));
}

#[test]
fn contexts_may_be_popped_in_any_order() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    let first = bench
        .router
        .push_context([("mm", "reference")])
        .expect("valid");
    let second = bench.router.push_context([("mm", "cpu")]).expect("valid");
    bench.router.pop_context(first).expect("active");
    assert_eq!(bench.decision("mm"), Decision::Native);
    bench.router.pop_context(second).expect("active");
    assert_eq!(bench.decision("mm"), Decision::Foreign(11));
}

#[test]
fn a_context_is_popped_once() {
    let bench = Bench::new();
    let token = bench.router.push_context([("mm", "cpu")]).expect("valid");
    bench.router.pop_context(token).expect("active");
    let error = bench.router.pop_context(token).expect_err("popped already");
    assert_eq!(
        error.to_string(),
        "pop_context: this context is not active; pop each context once"
    );
}

#[test]
fn within_a_context_the_last_route_for_an_operator_counts() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    let routes = [("mm", "cpu"), ("aten::mm", "reference")];
    bench.router.push_context(routes).expect("valid");
    assert_eq!(bench.decision("mm"), Decision::CpuFallback);
}
