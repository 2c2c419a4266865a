//! Counters and the CPU-fallback budget.

use super::*;
use crate::ErrorKind;

#[test]
fn fallbacks_are_counted_with_their_first_reason() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    for reason in ["complex64", "empty input"] {
        bench.router.record_fallback("mm", reason).expect("allowed");
    }
    bench
        .router
        .record_fallback("add.Tensor", "int4")
        .expect("allowed");
    let records = bench.router.fallbacks();
    let records: Vec<_> = records
        .iter()
        .map(|r| (&*r.op, r.count, r.reason.as_str()))
        .collect();
    assert_eq!(
        records,
        [
            ("aten::add.Tensor", 1, "int4"),
            ("aten::mm", 2, "complex64")
        ]
    );
    let slot = bench.router.slot("mm").expect("valid");
    slot.calls.fetch_add(5, Ordering::Relaxed);
    let counters = bench.router.counters();
    let counters: Vec<_> = counters
        .iter()
        .map(|c| (&*c.op, c.calls, c.fallbacks))
        .collect();
    assert_eq!(counters, [("aten::add.Tensor", 0, 1), ("aten::mm", 5, 2)]);
    let explained = bench.router.explain("mm").expect("known").to_string();
    let expected = "\n  fallbacks: 2, of which the first: complex64";
    assert!(explained.ends_with(expected), "{explained}");
    bench.router.reset_counters();
    assert!(bench.router.counters().is_empty() && bench.router.fallbacks().is_empty());
    let explained = bench.router.explain("mm").expect("known").to_string();
    assert!(!explained.contains("fallbacks"), "{explained}");
}

#[test]
fn a_fallback_over_the_budget_is_refused_and_not_counted() {
    let bench = Bench::new();
    bench.set("FLAGOS_MAX_CPU_FALLBACK", "1");
    bench.router.resolve().expect("a plan");
    bench
        .router
        .record_fallback("mm", "complex64")
        .expect("the first is allowed");
    let error = bench
        .router
        .record_fallback("add.Tensor", "int4")
        .expect_err("over the budget");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "aten::add.Tensor: CPU fallback refused (int4): the budget of 1 set by the variable \
         FLAGOS_MAX_CPU_FALLBACK is spent; route the operator elsewhere, or raise \
         max_cpu_fallback"
    );
    assert_eq!(bench.router.fallbacks().len(), 1);
    bench.router.reset_counters();
    bench
        .router
        .record_fallback("mm", "complex64")
        .expect("a new budget");
}

#[test]
fn strict_mode_refuses_every_fallback() {
    let bench = Bench::new();
    bench.set("FLAGOS_STRICT", "1");
    bench.router.resolve().expect("a plan");
    let error = bench
        .router
        .record_fallback("mm", "complex64")
        .expect_err("strict");
    assert_eq!(
        error.to_string(),
        "aten::mm: CPU fallback refused (complex64): strict mode is set by the variable \
         FLAGOS_STRICT; route the operator to an implementation that supports the call"
    );
    assert!(bench.router.counters().is_empty());
}

#[test]
fn an_unknown_operator_cannot_fall_back() {
    let bench = Bench::new();
    assert!(bench.router.record_fallback("mn", "typo").is_err());
}
