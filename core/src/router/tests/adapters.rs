//! Layers of adapters, rules of namespaces, and availability that changes.

use super::*;
use crate::policy::{Layer, OpPattern, Scoped, Selector, Source, Sourced};

fn prefer(kind: Kind) -> Layer {
    let order = Sourced::new(vec![Selector::Kind(kind)], Source::api("adapter"));
    let scoped = Scoped {
        order: Some(order),
        ..Scoped::default()
    };
    Layer {
        namespaces: [("aten".into(), scoped)].into(),
        ..Layer::default()
    }
}

#[test]
fn a_layer_of_an_adapter_is_published_and_taken_back() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    assert_eq!(bench.winner("mm").as_deref(), Some("flaggems.python"));
    let layer = prefer(Kind::Reference);
    let set = bench.router.set_adapter_layer("aten", Some(layer));
    set.expect("valid");
    assert_eq!(bench.decision("mm"), Decision::CpuFallback);
    // Routes of the API still beat the adapter's layer.
    bench.router.set_route("mm", "cpu", "test").expect("valid");
    assert_eq!(bench.winner("mm").as_deref(), Some("cpu.native"));
    bench.router.clear_route(None).expect("valid");
    let taken = bench.router.set_adapter_layer("aten", None);
    taken.expect("valid");
    assert_eq!(bench.winner("mm").as_deref(), Some("flaggems.python"));
}

#[test]
fn another_layer_can_stand_in_for_one_question() {
    let bench = Bench::new();
    let set = bench
        .router
        .set_adapter_layer("aten", Some(prefer(Kind::Reference)));
    set.expect("valid");
    let over = prefer(Kind::Vendor);
    let order = |over| {
        let policy = bench.router.policy_over(over).expect("valid");
        policy.namespaces["aten"].order.clone().expect("set").value
    };
    assert_eq!(order(None), [Selector::Kind(Kind::Reference)]);
    assert_eq!(order(Some(("aten", &over))), [Selector::Kind(Kind::Vendor)]);
}

#[test]
fn a_route_of_an_adapter_is_beaten_by_one_of_a_variable() {
    let bench = Bench::new();
    bench.set("FLAGOS_OP_mm", "cpu");
    let mut layer = Layer::default();
    let pattern = OpPattern::parse("mm").expect("valid");
    layer.route(
        pattern,
        vec![Selector::Kind(Kind::Reference)],
        Source::api("adapter"),
    );
    // Two layers have routes: the adapter's, and the environment's above it.
    let policy = bench.router.policy_over(Some(("aten", &layer)));
    assert_eq!(policy.expect("valid").ops.len(), 2);
}

#[test]
fn what_becomes_unavailable_is_passed_over_until_it_is_back() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    let set = |availability| {
        let router = &bench.router;
        router.set_availability("mm", "flaggems.python", availability)
    };
    set(Availability::Unavailable("no chip".into())).expect("known");
    assert_eq!(bench.winner("mm").as_deref(), Some("cpu.native"));
    assert_eq!(
        bench.winner("add.Tensor").as_deref(),
        Some("flaggems.python")
    );
    set(Availability::Available).expect("known");
    assert_eq!(bench.winner("mm").as_deref(), Some("flaggems.python"));
    let wrong = bench
        .router
        .set_availability("mm", "flaggems.pythn", Availability::Available);
    let message = wrong.expect_err("unknown").to_string();
    assert!(
        message.contains("did you mean `flaggems.python`?"),
        "{message}"
    );
}

#[test]
fn rules_declared_late_decide_again() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    let other = Implementation::new("zz.python", Kind::Flagos, "flagos");
    bench.router.register("mm", other).expect("fresh");
    assert_eq!(bench.winner("mm").as_deref(), Some("flaggems.python"));
    let rules = Namespace {
        last_id_wins: true,
        ..Namespace::default()
    };
    let declared = bench.router.declare_namespace("aten", rules);
    declared.expect("valid");
    assert_eq!(bench.winner("mm").as_deref(), Some("zz.python"));
}

#[test]
fn a_thread_waits_for_the_fork() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    bench.router.hold_for_fork();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bench.router.ops("aten::").len());
        // SAFETY: held above, on this thread.
        unsafe { bench.router.release_after_fork() };
        assert_eq!(waiting.join().expect("no panic"), 3);
    });
    bench.router.hold_for_fork();
    // SAFETY: held above; the other thread is gone.
    unsafe { bench.router.release_after_fork_in_child() };
    assert_eq!(bench.router.ops("aten::").len(), 3);
}
