//! Slots follow the plan.

use super::*;

#[test]
fn before_the_first_resolution_every_slot_is_native() {
    let bench = Bench::new();
    assert_eq!(bench.decision("mm"), Decision::Native);
    assert!(bench.router.published().is_none());
}

#[test]
fn resolving_rewrites_every_slot() {
    let bench = Bench::new();
    bench.set("FLAGOS_OP_add__Tensor", "cpu");
    bench.set("FLAGOS_OP_add__Scalar", "cuda");
    let slot = bench.router.slot("mm").expect("valid");
    bench.router.resolve().expect("a plan");
    assert_eq!(slot.load(), Decision::Foreign(11));
    assert_eq!(bench.decision("add.Tensor"), Decision::Native);
    assert_eq!(bench.decision("add.Scalar"), Decision::Blocked);
    let reason = bench.router.blocked_reason("add.Scalar").expect("known");
    let reason = reason.expect("blocked");
    assert!(reason.starts_with(
        "aten::add.Scalar is blocked: none of `cuda`, set by the variable FLAGOS_OP_add__Scalar"
    ));
    assert_eq!(bench.router.blocked_reason("mm").expect("known"), None);
}

#[test]
fn the_token_stays_when_the_route_leaves() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    bench
        .router
        .set_route("mm", "reference", "test")
        .expect("valid");
    let slot = bench.router.slot("mm").expect("valid");
    assert_eq!(slot.load(), Decision::CpuFallback);
    assert_eq!(slot.impl_token.load(Ordering::Relaxed), 11);
}

#[test]
fn the_log_flag_is_in_every_slot_also_in_those_that_come_later() {
    let bench = Bench::new();
    bench.set("FLAGOS_LOG_DISPATCH", "1");
    let flags = |op: &str| {
        let slot = bench.router.slot(op).expect("valid");
        slot.flags.load(Ordering::Relaxed)
    };
    assert_eq!(flags("mm"), 0);
    bench.router.resolve().expect("a plan");
    assert_eq!(flags("mm"), FLAG_LOG_DISPATCH);
    assert_eq!(flags("bmm"), FLAG_LOG_DISPATCH);
}

#[test]
fn numbers_of_a_newer_core_block() {
    assert_eq!(Route::from_raw(0), Route::Native);
    assert_eq!(Route::from_raw(1), Route::Foreign);
    assert_eq!(Route::from_raw(2), Route::Blocked);
    assert_eq!(Route::from_raw(3), Route::CpuFallback);
    assert_eq!(Route::from_raw(99), Route::Blocked);
}

#[test]
fn every_change_is_told_also_before_the_first_plan() {
    use std::sync::atomic::AtomicUsize;

    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let bench = Bench::new();
    bench
        .router
        .when_changed(|| _ = TOLD.fetch_add(1, Ordering::Relaxed));
    let publications_by = |work: &dyn Fn()| {
        let before = TOLD.load(Ordering::Relaxed);
        work();
        TOLD.load(Ordering::Relaxed) - before
    };
    let route = || bench.router.set_route("mm", "reference", "test");
    assert_eq!(publications_by(&|| route().expect("valid")), 1);
    assert_eq!(
        publications_by(&|| drop(bench.router.resolve().expect("a plan"))),
        1
    );
    assert_eq!(publications_by(&|| route().expect("valid")), 1);
    assert_eq!(
        publications_by(&|| drop(bench.router.plan().expect("a plan"))),
        0
    );
    let refused = || bench.router.set_route("mn", "reference", "test");
    assert_eq!(
        publications_by(&|| drop(refused().expect_err("unknown"))),
        0
    );
    assert_eq!(
        publications_by(&|| drop(bench.router.reload().expect("a plan"))),
        1
    );
}
