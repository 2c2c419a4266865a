//! What registering, resolving and rerouting 2,500 operators cost.
//!
//! `cargo bench -p flagos-core --bench resolve`. Each line is the least and the median time of 50
//! runs in microseconds, and the median as a ratio to the budget.

use std::hint::black_box;
use std::time::Instant;

use flagos_core::env::Env;
use flagos_core::policy::Disk;
use flagos_core::registry::{Callable, Engine, Impl, Kind};

const OPS: usize = 2500;
const RUNS: usize = 50;

/// Microseconds of `work`, least and median, each run on something `prepare` made.
fn measure<T>(mut prepare: impl FnMut() -> T, mut work: impl FnMut(&T)) -> [f64; 2] {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let prepared = prepare();
            let start = Instant::now();
            work(&prepared);
            start.elapsed().as_nanos() as f64 / 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[0], times[RUNS / 2]]
}

fn names() -> Vec<String> {
    let overload = ["", ".out", ".Tensor", ".Scalar", ".dim_IntList"];
    let name = |n: usize| {
        format!(
            "operator_{}{}",
            n / overload.len(),
            overload[n % overload.len()]
        )
    };
    (0..OPS).map(name).collect()
}

/// An engine with twenty routes in its environment.
fn engine() -> Engine {
    let routes = |n: usize| (format!("FLAGOS_OP_operator_{n}__Tensor"), "cpu|reference");
    let env = Env::from_pairs((0..20).map(routes));
    Engine::new(move || env.clone(), Disk)
}

fn register(engine: &Engine, names: &[String]) {
    let gems = Impl::new("flaggems.python", Kind::Flagos, "flaggems");
    let gems = gems.callable(Callable::Foreign(1));
    let native = Impl::new("cpu.native", Kind::Vendor, "cpu").vendor("host");
    let reference = Impl::new("cpu.reference", Kind::Reference, "cpu");
    for implementation in [gems, native, reference] {
        let registered = engine.register_impls("aten", names, implementation);
        registered.expect("fresh implementations");
    }
}

fn resolved(names: &[String]) -> Engine {
    let engine = engine();
    register(&engine, names);
    engine.resolve().expect("a plan");
    engine
}

fn line(name: &str, [least, median]: [f64; 2], budget: f64) {
    println!(
        "{name:<44} {least:>9.1} {median:>9.1} {:>9.3}",
        median / budget
    );
}

fn main() {
    let names = names();
    println!(
        "{:<44} {:>9} {:>9} {:>9}",
        "µs", "least", "median", "budget"
    );
    let times = measure(engine, |engine| register(engine, &names));
    line("register 3 x 2,500 implementations", times, 5_000.0);
    let registered = || {
        let engine = engine();
        register(&engine, &names);
        engine
    };
    let times = measure(registered, |engine| {
        black_box(engine.resolve().expect("a plan"));
    });
    line("resolve and publish 2,500 operators", times, 10_000.0);
    let engine = resolved(&names);
    let times = measure(
        || (),
        |()| {
            let token = engine.push_context([("operator_7", "reference")]);
            engine.pop_context(token.expect("valid")).expect("active");
        },
    );
    line("push and pop a context of one route", times, 1_000.0);
    let times = measure(
        || resolved(&names),
        |engine| {
            let mine = Impl::new("user.mine", Kind::Flagos, "flagos_python");
            engine.register_impl("operator_7", mine).expect("fresh");
        },
    );
    line("register one more implementation", times, 1_000.0);
    let plan = engine.plan().expect("a plan");
    let times = measure(|| (), |()| drop(black_box(plan.lock())));
    line("write the lock file's text", times, 10_000.0);
}
