//! The cost of registering, resolving and rerouting 2,500 operators.
//!
//! `cargo bench -p flagos-core --bench resolve`. Each line is the least and the median time of 50
//! runs in microseconds, and the median as a ratio to the budget.

use std::hint::black_box;
use std::time::Instant;

use flagos_core::env::Env;
use flagos_core::policy::Disk;
use flagos_core::registry::{Callable, Implementation, Kind};
use flagos_core::router::Router;

const OPS: usize = 2500;
const RUNS: usize = 50;

/// Microseconds of `work`, least and median; `prepare` makes the value for each run.
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

/// A router with twenty routes in its environment.
fn router() -> Router {
    let routes = |n: usize| (format!("FLAGOS_OP_operator_{n}__Tensor"), "cpu|reference");
    let env = Env::from_pairs((0..20).map(routes));
    Router::new(move || env.clone(), Disk)
}

fn register(router: &Router, names: &[String]) {
    let gems = Implementation::new("flaggems.python", Kind::Flagos, "flaggems");
    let gems = gems.callable(Callable::Foreign(1));
    let native = Implementation::new("cpu.native", Kind::Vendor, "cpu").vendor("host");
    let reference = Implementation::new("cpu.reference", Kind::Reference, "cpu");
    for implementation in [gems, native, reference] {
        let registered = router.register_all("aten", names, implementation);
        registered.expect("fresh implementations");
    }
}

fn resolved(names: &[String]) -> Router {
    let router = router();
    register(&router, names);
    router.resolve().expect("a plan");
    router
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
    let times = measure(router, |router| register(router, &names));
    line("register 3 x 2,500 implementations", times, 5_000.0);
    let registered = || {
        let router = router();
        register(&router, &names);
        router
    };
    let times = measure(registered, |router| {
        black_box(router.resolve().expect("a plan"));
    });
    line("resolve and publish 2,500 operators", times, 10_000.0);
    let router = resolved(&names);
    let times = measure(
        || (),
        |()| {
            let token = router.push_context([("operator_7", "reference")]);
            router.pop_context(token.expect("valid")).expect("active");
        },
    );
    line("push and pop a context of one route", times, 1_000.0);
    let times = measure(
        || resolved(&names),
        |router| {
            let mine = Implementation::new("user.mine", Kind::Flagos, "flagos_python");
            router.register("operator_7", mine).expect("fresh");
        },
    );
    line("register one more implementation", times, 1_000.0);
    let plan = router.plan().expect("a plan");
    let times = measure(|| (), |()| drop(black_box(plan.lock())));
    line("write the lock file's text", times, 10_000.0);
}
