//! Loading, changing and refusing.

use std::path::Path;

use super::*;
use crate::ErrorKind;

#[test]
fn the_configuration_is_read_when_first_needed() {
    let bench = Bench::new();
    bench.set("FLAGOS_STRCIT", "1");
    bench
        .router
        .slot("bmm")
        .expect("registration reads no configuration");
    let error = bench.router.resolve().expect_err("unknown variable");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "environment: unknown variable `FLAGOS_STRCIT`; did you mean `FLAGOS_STRICT`?"
    );
    assert!(bench.router.published().is_none());
}

#[test]
fn reload_reads_again_and_keeps_the_old_plan_when_it_fails() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    bench.write("flagos.toml", "[ops]\nmm = \"reference\"\n");
    assert_eq!(bench.winner("mm").as_deref(), Some("flaggems.python"));
    bench.router.reload().expect("a plan");
    assert_eq!(bench.winner("mm").as_deref(), Some("cpu.reference"));
    bench.write("flagos.toml", "[ops]\nmn = \"reference\"\n");
    let error = bench.router.reload().expect_err("unknown operator");
    assert_eq!(
        error.to_string(),
        "configuration: unknown operator `aten::mn` (at: flagos.toml:2); \
         did you mean `aten::mm`?"
    );
    assert_eq!(bench.decision("mm"), Decision::CpuFallback);
    bench
        .router
        .set_route("add.Tensor", "cpu", "test")
        .expect("the old configuration holds");
}

#[test]
fn a_route_of_the_api_beats_the_environment_until_it_is_cleared() {
    let bench = Bench::new();
    bench.set("FLAGOS_OP_mm", "reference");
    bench
        .router
        .set_route("mm", "impl:cpu.native", "early")
        .expect("kept until resolved");
    bench.router.resolve().expect("a plan");
    assert_eq!(bench.decision("mm"), Decision::Native);
    let call = "flagos.set_route(\"mm\", \"flaggems\")";
    bench
        .router
        .set_route("mm", "flaggems", call)
        .expect("valid");
    assert_eq!(bench.decision("mm"), Decision::Foreign(11));
    let explained = bench.router.explain("mm").expect("known");
    assert_eq!(explained.decided_by, format!("the call {call}"));
    assert_eq!(bench.router.clear_route(Some("mm")).expect("valid"), 1);
    assert_eq!(bench.decision("mm"), Decision::CpuFallback);
    assert_eq!(bench.router.clear_route(Some("mm")).expect("valid"), 0);
}

#[test]
fn every_route_of_the_api_can_be_cleared_at_once() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    bench.router.set_route("mm", "cpu", "test").expect("valid");
    bench
        .router
        .set_route("add.*", "reference", "test")
        .expect("valid");
    assert_eq!(bench.decision("add.Scalar"), Decision::CpuFallback);
    assert_eq!(bench.router.clear_route(None).expect("valid"), 2);
    for op in ["mm", "add.Scalar", "add.Tensor"] {
        assert_eq!(bench.decision(op), Decision::Foreign(11), "{op}");
    }
}

#[test]
fn a_wrong_route_of_the_api_is_refused_and_changes_nothing() {
    let cases = [
        ("mn", "cpu", "did you mean `aten::mm`?"),
        ("mm", "cpuu", "did you mean `cpu`?"),
        ("mm", "impl:cpu.nativ", "did you mean `cpu.native`?"),
        ("mm", "vendor:hots", "did you mean `host`?"),
    ];
    for resolved in [false, true] {
        let bench = Bench::new();
        if resolved {
            bench.router.resolve().expect("a plan");
        }
        for (op, selectors, hint) in cases {
            let error = bench
                .router
                .set_route(op, selectors, "test")
                .expect_err("refused");
            assert_eq!(error.hint(), Some(hint), "{error}");
            assert!(bench.router.push_context([(op, selectors)]).is_err());
        }
        bench.router.resolve().expect("nothing was kept");
        assert_eq!(bench.decision("mm"), Decision::Foreign(11));
    }
}

#[test]
fn strict_mode_refuses_a_route_that_cannot_be_followed() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    bench.router.set_strict(true).expect("nothing is blocked");
    let error = bench
        .router
        .set_route("mm", "cuda", "test")
        .expect_err("strict");
    assert_eq!(
        error.context("strict"),
        Some("the call flagos.set_strict(True)")
    );
    assert_eq!(bench.decision("mm"), Decision::Foreign(11));
    bench.router.set_strict(false).expect("valid");
    bench
        .router
        .set_route("mm", "cuda", "test")
        .expect("blocked instead");
    assert_eq!(bench.decision("mm"), Decision::Blocked);
    let error = bench
        .router
        .set_strict(true)
        .expect_err("a route is blocked");
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[test]
fn an_implementation_that_comes_or_goes_changes_the_plan_at_once() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    let mine = Implementation::new("user.mm", Kind::Flagos, "flagos_python").priority(1);
    let mine = mine.callable(Callable::Foreign(42));
    bench.router.register("mm", mine).expect("fresh");
    assert_eq!(bench.decision("mm"), Decision::Foreign(42));
    bench
        .router
        .set_route("mm", "impl:user.mm", "test")
        .expect("known");
    bench
        .router
        .unregister("mm", "user.mm")
        .expect("registered");
    // The route names an implementation that is gone, which blocks the operator.
    assert_eq!(bench.decision("mm"), Decision::Blocked);
    bench.router.clear_route(Some("mm")).expect("valid");
    assert_eq!(bench.decision("mm"), Decision::Foreign(11));
}

#[test]
fn an_operator_registered_one_by_one_may_come_after_a_route_for_its_neighbour() {
    let bench = Bench::new();
    bench.write(
        "flagos.toml",
        "[ops]\n\"my::b\" = \"impl:b\"\n\"my::a\" = \"impl:a\"\n",
    );
    bench
        .router
        .resolve()
        .expect("nothing of `my` is registered");
    for (op, token) in [("a", 1), ("b", 2)] {
        let implementation = Implementation::new(op, Kind::Reference, "flagos");
        let implementation = implementation.callable(Callable::Foreign(token));
        let registered = bench.router.register(&format!("my::{op}"), implementation);
        registered.expect("fresh");
    }
    assert_eq!(bench.decision("my::a"), Decision::Foreign(1));
    assert_eq!(bench.decision("my::b"), Decision::Foreign(2));
    assert!(bench.router.plan().expect("a plan").unmatched().is_empty());
}

#[test]
fn routes_kept_for_a_namespace_are_checked_when_it_registers_in_bulk() {
    let bench = Bench::new();
    bench.write("flagos.toml", "[ops]\n\"te::nrom\" = \"cpu\"\n");
    bench
        .router
        .resolve()
        .expect("nothing of `te` is registered");
    let reference = Implementation::new("te.reference", Kind::Reference, "cpu");
    let error = bench
        .router
        .register_all("te", ["norm", "gemm"], reference.clone());
    assert_eq!(
        error.expect_err("unknown").hint(),
        Some("did you mean `te::norm`?")
    );
    // The registration was undone as a whole, so that registering again is no duplicate.
    bench.write("flagos.toml", "[ops]\n\"te::norm\" = \"cpu\"\n");
    bench.router.reload().expect("a plan");
    bench
        .router
        .register_all("te", ["norm", "gemm"], reference)
        .expect("fresh");
    assert_eq!(bench.winner("te::norm").as_deref(), Some("te.reference"));
}

#[test]
fn an_operator_interned_later_is_explained() {
    let bench = Bench::new();
    bench.set("FLAGOS_OP_mm", "cpu");
    bench.router.resolve().expect("a plan");
    bench.router.slot("aten::view").expect("valid");
    let explained = bench.router.explain("view").expect("known");
    assert_eq!(explained.route, Route::Native);
}

#[test]
fn the_shipped_configuration_is_the_weakest_layer() {
    let bench = Bench::new();
    bench.write("shipped.conf", "mm = reference\nadd.Tensor = reference\n");
    bench.write("flagos.toml", "[ops]\nmm = \"vendor\"\n");
    bench
        .router
        .set_shipped_config(Path::new("shipped.conf"))
        .expect("valid");
    bench.router.resolve().expect("a plan");
    assert_eq!(bench.decision("mm"), Decision::Native);
    assert_eq!(bench.decision("add.Tensor"), Decision::CpuFallback);
}

#[test]
fn a_locked_plan_refuses_to_become_another() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    bench.write("flagos.lock", &bench.router.lock_text().expect("a plan"));
    bench.set("FLAGOS_LOCK", "flagos.lock");
    bench.router.reload().expect("the same plan");
    bench
        .router
        .check_lock(Path::new("flagos.lock"))
        .expect("the same plan");
    bench.set("FLAGOS_OP_mm", "cpu");
    let error = bench.router.reload().expect_err("another plan");
    assert_eq!(error.kind(), ErrorKind::Config);
    let detail = error.detail().expect("differences");
    assert_eq!(
        detail,
        "~ aten::mm: flaggems.python -> cpu.native (cpu, set by the variable FLAGOS_OP_mm)"
    );
    assert_eq!(bench.decision("mm"), Decision::Foreign(11));
    let error = bench
        .router
        .check_lock(Path::new("nowhere.lock"))
        .expect_err("no file");
    assert!(
        error.message().starts_with("cannot read nowhere.lock"),
        "{error}"
    );
}

#[test]
fn the_vendor_of_the_environment_beats_the_one_that_was_found() {
    let bench = Bench::new();
    bench.set("FLAGOS_VENDOR", "cuda");
    bench.set("FLAGOS_DISABLE_FLAGGEMS_PY", "1");
    assert_eq!(bench.router.config().expect("valid").vendor(), Some("cuda"));
    bench.router.resolve().expect("a plan");
    assert_eq!(bench.winner("mm").as_deref(), Some("cpu.reference"));
}

#[test]
fn the_engine_of_the_process_is_one() {
    assert!(std::ptr::eq(global(), global()));
}

#[test]
fn readers_never_wait_for_a_half_published_plan() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    let slot = bench.router.slot("mm").expect("valid");
    std::thread::scope(|scope| {
        let router = &bench.router;
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    (0..20_000).all(|_| {
                        let seen = slot.load();
                        matches!(seen, Decision::Foreign(11) | Decision::CpuFallback)
                    })
                })
            })
            .collect();
        for _ in 0..200 {
            let token = router.push_context([("mm", "reference")]).expect("valid");
            router.pop_context(token).expect("active");
        }
        for reader in readers {
            assert!(
                reader.join().expect("no panic"),
                "a decision nobody published"
            );
        }
    });
}

#[test]
fn what_is_corrected_after_a_failure_is_seen_by_the_next_attempt() {
    let bench = Bench::new();
    bench.set("FLAGOS_OP_mn", "cpu");
    bench.router.config().expect("the grammar is right");
    bench.router.resolve().expect_err("unknown operator");
    bench.vars.lock().clear();
    bench.router.resolve().expect("a plan");
}

#[test]
fn a_change_the_program_asks_for_need_not_agree_with_the_lock() {
    let bench = Bench::new();
    bench.router.resolve().expect("a plan");
    bench.write("flagos.lock", &bench.router.lock_text().expect("a plan"));
    bench.set("FLAGOS_LOCK", "flagos.lock");
    bench.router.reload().expect("the same plan");
    bench.router.set_route("mm", "cpu", "test").expect("valid");
    bench.router.set_strict(true).expect("nothing is blocked");
    assert_eq!(bench.decision("mm"), Decision::Native);
}

#[test]
fn a_file_may_route_what_the_framework_keeps() {
    let bench = Bench::new();
    bench.write("all.conf", "mm = cpu\nalias = cuda\ndetach = cuda\n");
    bench.set("FLAGOS_BACKEND_CONFIG", "all.conf");
    assert!(bench.router.resolve().is_err());
    let left = ["aten::alias", "aten::detach"].map(str::to_owned);
    bench.router.leave_to_framework(left.to_vec()).expect("set");
    bench.router.resolve().expect("lines without effect");
    bench.write("all.conf", "mm = cpu\nalais = cuda\n");
    assert!(bench.router.reload().is_err(), "a typo");
}
